"""Embedders: from Docs to a row for each token, and for each word of a lexicon."""
