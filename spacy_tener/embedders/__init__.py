"""Embedders: from Docs to a vector for each token, or for each lexicon word that matches in them."""
