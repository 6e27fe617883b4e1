"""Training of `tener_ner`: conversion of gold annotation, losses, and knowledge distillation."""
