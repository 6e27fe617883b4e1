"""TENER (Yan et al., 2019), the vanilla transformer that it is compared with, and both over the characters of words."""
