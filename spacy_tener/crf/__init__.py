"""Inference in a linear-chain CRF, in numpy: Viterbi, k best paths, forward-backward, and probabilities of entities."""
