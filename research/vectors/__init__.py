"""Vectors of characters, bigrams and words, trained on raw text by word2vec."""
