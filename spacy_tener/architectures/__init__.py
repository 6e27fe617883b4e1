"""The architectures of the papers, a folder each, and `tagger.py`, which adds the CRF to any of them."""
