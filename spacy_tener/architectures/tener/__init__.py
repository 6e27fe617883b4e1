"""TENER (Yan et al., 2019, https://arxiv.org/abs/1911.04474): a transformer encoder for named entity recognition.

The registered functions are in `tener.py`, and the hyperparameters in `tener_config.py`. `tener_torch.py` implements
the encoder in torch, for training and for GPUs. `tener_numpy.py` implements the encoder in NumPy, for prediction on a
CPU.
"""
