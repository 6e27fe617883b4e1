"""A linear-chain conditional random field (CRF) over BIOES tags, with training in PyTorch and inference in NumPy.

- `crf_torch`: the module `CRF`, which computes the loss for training.
- `crf_numpy`: `CRFPredictor`, which the pipeline uses for prediction.
- `transitions`: the transition matrix, and its parameters.
- `forward`: the forward-backward algorithm, for the loss and for probabilities.
- `decode`: Viterbi decoding. `pruning` excludes tags before decoding.
- `marginals`: entity probabilities, and the entropy of the CRF.
"""
