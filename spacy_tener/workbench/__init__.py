"""What makes a pipeline and judges it: corpora, configs, vectors, runs, reports. Trained pipelines need none of it."""
