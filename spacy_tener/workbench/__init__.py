"""Tools that make and judge pipelines: corpora, configs, vectors, runs, reports. Trained pipelines need none of it."""
