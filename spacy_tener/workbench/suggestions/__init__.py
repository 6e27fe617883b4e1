"""Where a person's eye is worth most: texts to annotate next, and annotation that may be wrong."""
