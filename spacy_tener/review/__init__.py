"""Help for annotators: texts to annotate next (active learning), and reviews of annotation that may be wrong."""
