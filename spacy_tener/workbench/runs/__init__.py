"""Training runs: grids and searches."""
