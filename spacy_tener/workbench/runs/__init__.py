"""Training runs: grids of systems, corpora and seeds, and hyperparameter search."""
