"""Training of `tener_ner`: targets from gold annotation, losses, and knowledge distillation."""
