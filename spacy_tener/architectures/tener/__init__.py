"""TENER (Yan et al., 2019, https://arxiv.org/abs/1911.04474): a transformer encoder for named entity recognition.

`tener.py` has the registered functions, `tener_config.py` the sizes and options, `tener_torch.py` the modules for
training and for GPUs, and `tener_numpy.py` the same computation for prediction without torch.
"""
