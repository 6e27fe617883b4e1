"""The spaCy side: the `tener_ner` component and what it sees of a Doc."""
