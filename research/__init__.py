"""What reproduces the papers: grids of trainings, searches, tables and figures of their runs, and benchmarks."""
