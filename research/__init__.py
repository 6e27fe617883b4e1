"""Commands and benchmarks to reproduce the papers: grids of training runs, random search, tables and figures of
results."""
