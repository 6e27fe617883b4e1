"""The loss of a batch, given emissions, and its gradient, compared with brute force over all paths."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from crf_brute_force import all_paths, path_score
from hypothesis import given, settings
from hypothesis import strategies as st
from losses import loss_of_scores

from spacy_tener.crf.crf_torch import CRF
from spacy_tener.pipeline.learning.learn_torch import batch_loss
from spacy_tener.pipeline.learning.targets import IncorrectSpan, Target
from spacy_tener.pipeline.masks import possible_tags
from spacy_tener.pipeline.tags import UNKNOWN, LabelIndex
from spacy_tener.pipeline.units import OUTSIDE, Units
from spacy_tener.tagging import TagLayout

N_LABELS = 2
LAYOUT = TagLayout(N_LABELS)
LENGTH = 4


PATHS = all_paths(LAYOUT, LENGTH)
SPANS = [(start, end, label) for start in range(LENGTH) for end in range(start + 1, LENGTH + 1) for label in (0, 1)]


def has_entity(path, span):
    """Return whether a path contains the entity."""
    entities = zip(*(column.tolist() for column in LAYOUT.decode(path)), strict=True)
    return tuple(span) in set(entities)


@pytest.fixture
def crf():
    model = CRF(N_LABELS)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_()
    return model


def random_scores(*lengths):
    rng = np.random.default_rng(1)
    return [rng.normal(size=(length, LAYOUT.n_tags)).astype(np.float32) for length in lengths]


def target(tags, incorrect=(), space=None):
    n = len(tags)
    unit_type = np.array(space or [False] * n).astype(np.int64)
    units = Units(unit_type, np.full(n, OUTSIDE), np.zeros(n, dtype=np.uint64), np.zeros(n, dtype=bool))
    spans = [IncorrectSpan(*span) for span in incorrect]
    possible = possible_tags(units, LabelIndex(range(N_LABELS)))
    return Target(None, units, np.array(tags, dtype=np.int64), spans, possible=possible)


def path_scores(crf, scores, paths):
    """Return the scores of paths, differentiable with respect to the emissions."""
    repeated = scores.repeat(len(paths), 1)
    return path_score(crf, repeated, [paths.shape[1]] * len(paths), torch.from_numpy(paths.ravel())).double()


def agrees_with_annotation(tags):
    is_annotated = np.array(tags) != UNKNOWN
    return (PATHS[:, is_annotated] == np.array(tags)[is_annotated]).all(axis=1)


def test_loss_excludes_paths_with_white_space_boundaries(crf):
    [scores] = random_scores(LENGTH)
    emissions = torch.from_numpy(scores)
    edge = [tag for block in (LAYOUT.begin, LAYOUT.single, LAYOUT.end) for tag in range(block.start, block.stop)]
    possible = ~np.isin(PATHS[:, 1], edge)
    weights = path_scores(crf, emissions, PATHS)
    gold = [LAYOUT.outside] * LENGTH
    index = int(np.flatnonzero((np.array(gold) == PATHS).all(axis=1))[0])
    expected = weights[torch.from_numpy(possible)].logsumexp(0) - weights[index]
    space = [False, True, False, False]
    for tags in (gold, [*gold[:3], UNKNOWN]):
        loss = float(batch_loss(crf, emissions, [target(tags, space=space)]).detach())
        if UNKNOWN in tags:
            shared = torch.from_numpy(possible & agrees_with_annotation(tags))
            expected = weights[torch.from_numpy(possible)].logsumexp(0) - weights[shared].logsumexp(0)
        assert loss == pytest.approx(expected.item(), rel=1e-4, abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(
    path=st.sampled_from(range(len(PATHS))),
    is_annotated=st.lists(st.booleans(), min_size=LENGTH, max_size=LENGTH),
    spans=st.lists(st.sampled_from(SPANS), min_size=1, max_size=3, unique=True),
)
def test_incorrect_span_loss_and_gradient_equal_brute_force(path, is_annotated, spans):
    torch.manual_seed(0)
    crf = CRF(N_LABELS)
    tags = np.where(is_annotated, PATHS[path], UNKNOWN)
    [scores] = random_scores(LENGTH)
    emissions, brute = (torch.from_numpy(scores.copy()).requires_grad_(True) for _ in range(2))
    loss = batch_loss(crf, emissions, [target(tags, spans)])
    weights = path_scores(crf, brute, PATHS)
    agree = torch.from_numpy(agrees_with_annotation(tags))
    rest = weights[agree].logsumexp(0)
    expected = weights.logsumexp(0) - rest
    if not all(is_annotated):
        # In completely annotated texts, incorrect spans add nothing to the loss.
        for span in spans:
            has_span = torch.tensor([has_entity(p, span) for p in PATHS]) & agree
            probability = (weights[has_span].logsumexp(0) - rest).exp() if has_span.any() else torch.tensor(0.0)
            expected = expected - torch.log1p(-probability * (1 - 1e-6))
    assert float(loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-3, abs=1e-3)
    loss.backward()
    expected.backward()
    assert torch.isfinite(emissions.grad).all()
    torch.testing.assert_close(emissions.grad, brute.grad, rtol=1e-2, atol=1e-3)


def test_certain_incorrect_span_has_large_finite_loss():
    crf = CRF(N_LABELS)
    scores = torch.zeros(2, LAYOUT.n_tags)
    scores[0, LAYOUT.begin.start] = scores[1, LAYOUT.end.start] = 200.0
    emissions = scores.requires_grad_(True)
    loss = batch_loss(crf, emissions, [target([UNKNOWN] * 2, [(0, 2, 0)])])
    assert 5 < float(loss.detach()) < 30
    loss.backward()
    assert torch.isfinite(emissions.grad).all()
    assert float(emissions.grad[0, LAYOUT.begin.start]) >= 0


def test_batch_loss_is_sum_of_single_losses(crf):
    scores = random_scores(3, 1, 4)
    targets = [target([LAYOUT.outside] * 3), target([UNKNOWN]), target([UNKNOWN] * 4, [(1, 3, 1), (0, 1, 0)])]
    alone = [float(batch_loss(crf, torch.from_numpy(s), [t]).detach()) for s, t in zip(scores, targets, strict=True)]
    together = float(batch_loss(crf, torch.from_numpy(np.concatenate(scores)), targets).detach())
    assert together == pytest.approx(sum(alone), rel=1e-5)


def test_loss_of_scores_is_mean_over_texts(crf):
    scores, targets = random_scores(3, 0, 2), [target([LAYOUT.outside] * n) for n in (3, 0, 2)]
    before = [part.copy() for part in scores]
    loss, gradients = loss_of_scores(crf, scores, [[part] for part in targets])
    emissions = torch.from_numpy(np.concatenate(scores)).requires_grad_(True)
    expected = batch_loss(crf, emissions, targets) / 3
    expected.backward()
    assert loss == pytest.approx(float(expected.detach()))
    assert [g.shape for g in gradients] == [s.shape for s in scores]
    np.testing.assert_allclose(np.concatenate(gradients), emissions.grad, rtol=1e-5)
    for part, old in zip(scores, before, strict=True):
        np.testing.assert_array_equal(part, old)


def test_target_weight_scales_loss(crf):
    """Weights apply to complete annotation, partial annotation and incorrect spans."""
    scores = torch.from_numpy(np.concatenate(random_scores(LENGTH, LENGTH)))
    first, second = target(PATHS[0]), target([UNKNOWN] * LENGTH, incorrect=[(0, 1, 0)])
    alone = [batch_loss(crf, scores[:LENGTH], [first]).detach(), batch_loss(crf, scores[LENGTH:], [second]).detach()]
    weighted = [replace(first, weight=0.5), replace(second, weight=3.0)]
    expected = float(0.5 * alone[0] + 3.0 * alone[1])
    assert float(batch_loss(crf, scores, weighted).detach()) == pytest.approx(expected, rel=1e-4)
    complete = [replace(first, weight=0.5), replace(first, weight=2.0)]
    twice = batch_loss(crf, torch.cat([scores[:LENGTH]] * 2), complete).detach()
    assert float(twice) == pytest.approx(2.5 * float(alone[0]), rel=1e-4)
