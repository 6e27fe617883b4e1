"""Embedders: from Docs to rows of floats, `Model[List[Doc], List[Floats2d]]`."""
