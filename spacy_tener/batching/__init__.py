"""Places of the rows of a batch: sequences, lattices and spans, known before any number is computed."""
