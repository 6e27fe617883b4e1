"""Characters together with the words of a lexicon: FLAT, FLAT-ATSSA and MECT."""
