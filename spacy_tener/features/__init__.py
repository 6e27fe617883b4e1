"""Conversion of Docs to the ids that models take as input.

The modules compute hashes of strings and bigrams, matches of lexicon words, subword tokens and word segmentation, and
load pretrained vectors. They use NumPy only. `embedders` is the main user of these features.
"""
