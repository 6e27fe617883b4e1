"""Index arithmetic for the rows of a batch: sequences, lattices and spans."""
