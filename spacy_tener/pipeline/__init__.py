"""The spaCy components of this package: `tener_ner`, `lac` and `entity_lists`, and the tokenizers for them."""
