"""Embedders: layers that compute the embeddings of tokens or lexicon words."""
