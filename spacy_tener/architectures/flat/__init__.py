"""Chinese NER encoders with lexicon words: FLAT (Li et al., 2020), FLAT-ATSSA (Hu et al., 2022) and MECT (Wu et al.,
2021).

The registered functions are in `flat.py`, and the hyperparameters in `flat_config.py`. `flat_torch.py` and
`flat_numpy.py` implement the encoder that FLAT and MECT share. `atssa_torch.py` and `atssa_numpy.py` implement the
FLAT-ATSSA encoder.
"""
