"""Suggestions for annotators: texts to annotate next, and annotation that may be wrong."""
