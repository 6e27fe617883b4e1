"""GRN (Chen et al., 2019, https://arxiv.org/abs/1907.05611): the gated relation network, of CNNs without attention.

`grn.py` has the registered functions, `grn_config.py` the sizes and options, `grn_torch.py` the modules for training
and for GPUs, and `grn_numpy.py` the same computation for prediction without torch.
"""
