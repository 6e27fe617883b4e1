"""Test the decoding of the best path by enumerating all paths, with masks and in batches, and its memory use."""

from __future__ import annotations

import tracemalloc

import crf_brute_force as brute
import numpy as np
import pytest
import torch

from spacy_tener.crf.crf_torch import CRF

LENGTHS = brute.LENGTHS


def best_paths(crf, emissions, lengths, allowed=None):
    paths_and_scores = brute.paths_and_scores(crf, emissions, lengths, allowed)
    return np.concatenate([paths[int(scores.argmax())] for paths, scores in paths_and_scores])


@pytest.mark.parametrize("n_labels", [0, 1, 2, 3])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_decoder_returns_highest_scoring_path(n_labels, masked, seed):
    crf = brute.random_crf(n_labels, seed=seed)
    emissions = brute.random_emissions(crf, LENGTHS, seed=seed)
    allowed = brute.random_mask(crf, LENGTHS, seed=seed) if masked else None
    tags = brute.decode(crf, emissions, LENGTHS, allowed)
    assert tags.dtype == np.int64
    assert tags.tolist() == best_paths(crf, emissions, LENGTHS, allowed).tolist()


@pytest.mark.parametrize("n_sequences", [1, 2, 3, 4, 5, 9, 64])
def test_decoding_is_independent_of_batch(n_sequences):
    """The implementation of a step is different for small and large batches."""
    crf = brute.random_crf(3).float()
    lengths = np.random.default_rng(n_sequences).integers(0, 30, n_sequences).tolist()
    emissions = brute.random_emissions(crf, lengths).float()
    alone = [brute.decode(crf, part, [length]) for part, length in zip(emissions.split(lengths), lengths, strict=True)]
    assert brute.decode(crf, emissions, lengths).tolist() == np.concatenate(alone).tolist()


@pytest.mark.parametrize("n_sequences", [1, 8])
def test_decoder_breaks_ties_by_lowest_tag_from_the_end(n_sequences):
    crf = CRF(2)
    emissions = torch.zeros(4 * n_sequences, crf.layout.n_tags)
    paths = brute.all_paths(crf.layout, 4)
    first = min(paths.tolist(), key=lambda path: path[::-1])
    assert brute.decode(crf, emissions, [4] * n_sequences).tolist() == first * n_sequences


@pytest.mark.parametrize("n_sequences", [1, 6])
def test_error_names_sequence_without_allowed_path(n_sequences):
    crf = CRF(1)
    lengths = [2] * n_sequences
    emissions = torch.zeros(2 * n_sequences, crf.layout.n_tags)
    allowed = torch.ones(emissions.shape, dtype=torch.bool)
    allowed[-2, : crf.layout.n_open] = False
    with pytest.raises(ValueError, match=rf"no tag sequence is possible for text\(s\) \[{n_sequences - 1}\]"):
        brute.decode(crf, emissions, lengths, allowed)


def test_contradictory_allowed_tags_raise_error():
    crf = CRF(1)
    allowed = torch.zeros(2, crf.layout.n_tags, dtype=torch.bool)
    allowed[0, crf.layout.begin], allowed[1, crf.layout.outside] = True, True
    with pytest.raises(ValueError, match="allowed tags of adjacent tokens are compatible"):
        brute.decode(crf, torch.zeros(2, crf.layout.n_tags), [2], allowed)


def test_nan_emissions_raise_error():
    crf = CRF(1)
    with pytest.raises(ValueError, match="emissions contain no NaN"):
        brute.decode(crf, torch.full((2, crf.layout.n_tags), torch.nan), [2])


@pytest.mark.parametrize("lengths", [[], [0], [0, 0, 0]])
def test_empty_sequences_are_decoded_to_no_tags(lengths):
    assert brute.decode(CRF(2), torch.zeros(0, 9), lengths).shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_decoder_accepts_float32_and_float64_emissions(dtype):
    crf = brute.random_crf(2).float()
    emissions = brute.random_emissions(crf, LENGTHS, scale=8.0).to(dtype).requires_grad_()
    before = emissions.detach().clone()
    tags = brute.decode(crf, emissions, LENGTHS)
    assert tags.tolist() == best_paths(crf.double(), emissions.double(), LENGTHS).tolist()
    assert torch.equal(emissions, before)


@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_extreme_emissions_are_decoded_exactly(scale):
    crf = brute.random_crf(2)
    emissions = brute.random_emissions(crf, LENGTHS).sign() * scale
    tags = torch.from_numpy(brute.decode(crf, emissions, LENGTHS))
    best = torch.stack([scores.max() for _, scores in brute.paths_and_scores(crf, emissions, LENGTHS)])
    torch.testing.assert_close(brute.path_score(crf, emissions, LENGTHS, tags), best)


def test_memory_is_linear_in_number_of_tokens():
    crf = CRF(4)

    def peak(n_tokens):
        emissions = torch.zeros(n_tokens, crf.layout.n_tags)
        tracemalloc.start()
        brute.decode(crf, emissions, [n_tokens])
        _, highest = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return highest

    peak(10)
    assert peak(8000) < 6 * peak(2000)


def test_long_sequence_is_decoded_without_precision_loss():
    torch.manual_seed(0)
    crf = CRF(2)
    torch.nn.init.normal_(crf.outside)
    # Small differences of large scores would be lost in a float32 sum over the text.
    emissions = 100.0 + torch.rand(300, crf.layout.n_tags).repeat(100, 1)
    tags = brute.decode(crf, emissions, [len(emissions)])
    assert tags.tolist() == brute.decode(crf.double(), emissions.double(), [len(emissions)]).tolist()
    # The text repeats one segment, so all segments but the first and the last are decoded to the same tags.
    segments = tags.reshape(100, 300)
    assert (segments[1:-1] == segments[1]).all()
