"""The linear-chain CRF: loss, Viterbi, k best paths, marginals; and the head that feeds it."""
