"""A linear-chain conditional random field (CRF) over BIOES tags: the loss in PyTorch, and inference in NumPy.

Read in this order:

- `transitions`: the learned scores as tables over all tags, and the structure of BIOES tags in them
- `forward`: the forward-backward algorithm, on which the loss and all probabilities are built
- `crf_torch`: the loss for training, `CRF`
- `decode`: Viterbi decoding, with `pruning` before it
- `marginals`: probabilities of entities, and the entropy
- `crf_numpy`: `PathScorer`, through which the pipeline uses all of these in prediction
"""
