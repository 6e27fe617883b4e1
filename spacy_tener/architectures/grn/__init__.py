"""GRN (Chen et al., 2019, https://arxiv.org/abs/1907.05611): a CNN-based encoder with gated relations between tokens.

The registered functions are in `grn.py`, and the hyperparameters in `grn_config.py`. `grn_torch.py` implements the
encoder in torch, for training and for GPUs. `grn_numpy.py` implements the encoder in NumPy, for prediction on a CPU.
"""
