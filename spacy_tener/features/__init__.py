"""Extract the features that embedders take as input from Docs.

Features are hashes of strings and bigrams, lexicon matches, subword tokens and word boundaries. The package also loads
pretrained vectors. All modules use NumPy only.
"""
