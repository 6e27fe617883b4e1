"""From raw text to vectors, and to Docs for `spacy pretrain`."""
