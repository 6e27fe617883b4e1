"""FLAT (Li et al., 2020), FLAT-ATSSA (Hu et al., 2022) and MECT (Wu et al., 2021), which read words of a lexicon."""
