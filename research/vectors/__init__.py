"""Train vectors of characters, bigrams and words on raw texts with word2vec. Used by `python -m research vectors`."""
