"""Test the expansion of transition weights to tables over all tags."""

from __future__ import annotations

import crf_brute_force as brute
import numpy as np
import pytest
import torch
from paper_equations import allowed_transitions
from torch.testing import assert_close

from spacy_tener.crf.transitions import MAX_EXPONENT, Transitions, mirrored_tags, weight_gradients
from spacy_tener.tagging import TagLayout

SIZES = [0, 1, 3]


@pytest.mark.parametrize("n_labels", SIZES)
def test_only_allowed_transitions_have_finite_scores(n_labels):
    tables = Transitions.of(*brute.predictor_of(brute.random_crf(n_labels)).weights)
    layout = TagLayout(n_labels)
    assert np.isfinite(tables.table).tolist() == allowed_transitions(layout).tolist()
    tags = np.arange(layout.n_tags)
    assert np.flatnonzero(np.isfinite(tables.start)).tolist() == tags[layout.openers].tolist()
    assert np.flatnonzero(np.isfinite(tables.end)).tolist() == tags[layout.closers].tolist()


def test_inside_weights_are_placed_by_tag_names():
    crf = brute.random_crf(2)
    names = crf.layout.names(("x", "y"))
    table = Transitions.of(*brute.predictor_of(crf).weights).table
    found = [[table[names.index(f"{s}-{x}"), names.index(f"{t}-{x}")] for t in "EI" for x in "xy"] for s in "BI"]
    assert_close(torch.tensor(found, dtype=crf.inside.dtype), crf.inside.detach())


@pytest.mark.parametrize("n_labels", SIZES)
def test_weight_gradients_reverse_expansion_to_tables(n_labels):
    weights = brute.predictor_of(brute.random_crf(n_labels)).weights
    tables = Transitions.of(*weights)
    for found, expected in zip(
        weight_gradients(tables.layout, tables.start, tables.end, tables.table), weights, strict=True
    ):
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("n_labels", SIZES)
def test_mirrored_tables_score_reversed_paths(n_labels):
    crf = brute.random_crf(n_labels)
    tables = Transitions.of(*brute.predictor_of(crf).weights)
    start, table = tables.in_both_directions()
    swap = mirrored_tags(tables.layout)
    for path in brute.all_paths(tables.layout, 3):
        back = swap[path[::-1]]
        forward = tables.start[path[0]] + tables.table[path[:-1], path[1:]].sum() + tables.end[path[-1]]
        mirrored = start[1, back[0]] + table[1][back[:-1], back[1:]].sum() + tables.start[path[0]]
        assert forward == pytest.approx(mirrored)


@pytest.mark.parametrize("name", ["outside", "inside"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_large_transition_disables_exponentiation(name, sign):
    crf = brute.random_crf(2, scale=0.1)
    assert Transitions.of(*brute.predictor_of(crf).weights).can_exponentiate
    with torch.no_grad():
        getattr(crf, name)[0, 0] = sign * (MAX_EXPONENT + 1)
    assert not Transitions.of(*brute.predictor_of(crf).weights).can_exponentiate
