"""Training runs by `spacy train`: configs, silver-standard data, static vectors, and new labels for a pipeline."""
