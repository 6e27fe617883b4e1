"""PyTorch modules and functions, independent of spaCy and Thinc.

Batches are flat: the sequences of a batch joined into one `[N, d]` tensor, with their `lengths` beside it.
"""
