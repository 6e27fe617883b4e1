"""The spaCy components `tener_ner`, `lac` and `entity_lists`, and their tokenizers."""
