"""Train `tener_ner`: convert gold annotation to targets, compute losses, and distil knowledge from a teacher."""
