"""Training runs: grids of systems, corpora and seeds; random searches of settings."""
