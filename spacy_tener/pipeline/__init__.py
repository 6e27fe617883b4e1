"""The `tener_ner` component of spaCy."""
