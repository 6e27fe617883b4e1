"""Paths of tags through a sequence, in numpy: the best, the k best, sums over all, and probabilities."""
