"""Readers of the formats that NER corpora come in, and their conversion to `.spacy` files."""
