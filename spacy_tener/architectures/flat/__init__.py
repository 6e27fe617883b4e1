"""FLAT (Li et al., 2020), FLAT-ATSSA (Hu et al., 2022) and MECT (Wu et al., 2021): encoders with lexicon words.

`flat.py` has the registered functions of all three, `flat_config.py` their sizes and options. `flat_torch.py` and
`flat_numpy.py` have the encoder of FLAT and MECT, `atssa_torch.py` and `atssa_numpy.py` that of FLAT-ATSSA.
"""
