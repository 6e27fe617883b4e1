"""The PyTorch side: plain modules and functions that know nothing of spaCy or Thinc.

Batches are flat: the sequences of a batch joined into one `[N, d]` tensor, with their `lengths` beside it.
"""
