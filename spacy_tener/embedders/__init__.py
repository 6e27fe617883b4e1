"""Embedders: layers that compute the embeddings of tokens or of lexicon words."""
