"""A pretrained transformer as an embedder."""
