"""Embedders: layers that compute an embedding for each token of a batch, or for each lexicon word in it."""
