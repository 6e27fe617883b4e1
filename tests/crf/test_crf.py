"""Test the log-partition function, path scores, losses and gradients of the CRF by enumerating all paths."""

from __future__ import annotations

import crf_brute_force as brute
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from spacy_tener.crf.crf_torch import CRF, cross_entropy

LENGTHS = brute.LENGTHS
SIZES = [0, 1, 2, 3]


def assert_same_gradients(found, reference, crf, emissions):
    for gradient, expected in zip(
        brute.gradients(found, crf, emissions), brute.gradients(reference, crf, emissions), strict=True
    ):
        assert_close(gradient, expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("n_labels", SIZES)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["moderate", "extreme transitions"])
def test_log_partition_and_gradients_equal_brute_force(n_labels, masked, scale):
    crf = brute.random_crf(n_labels, scale=scale)
    emissions = brute.random_emissions(crf, LENGTHS).requires_grad_()
    allowed = brute.random_mask(crf, LENGTHS) if masked else None
    found = crf.log_partition(emissions, LENGTHS, allowed)
    reference = brute.log_partition(crf, emissions, LENGTHS, allowed)
    assert_close(found, reference)
    weights = torch.linspace(0.5, 2.0, len(LENGTHS), dtype=torch.float64)
    assert_same_gradients((found * weights).sum(), (reference * weights).sum(), crf, emissions)


@pytest.mark.parametrize("n_labels", SIZES)
def test_path_score_sums_emissions_and_transitions(n_labels):
    crf = brute.random_crf(n_labels)
    emissions = brute.random_emissions(crf, LENGTHS).requires_grad_()
    tags = brute.random_tags(crf, LENGTHS)
    found = brute.path_score(crf, emissions, LENGTHS, tags)
    parts = zip(emissions.split(LENGTHS), tags.split(LENGTHS), strict=True)
    reference = torch.cat([brute.path_scores(crf, part, path[None].numpy()) for part, path in parts])
    assert_close(found, reference)
    assert_same_gradients(found.sum(), reference.sum(), crf, emissions)


@pytest.mark.parametrize(
    "tags",
    [[1, 0], [0, 0, 3], [4, 3], [3, 1], [0, 4], [2, 3], [0, 1, 3], [0, 4, 2]],
    ids=["O B", "B B E", "I E", "E O", "B I", "S E", "B O E", "B I S"],
)
def test_path_score_of_invalid_tag_sequence_is_minus_infinity(tags):
    crf = brute.random_crf(1)
    emissions = brute.random_emissions(crf, [len(tags)])
    assert brute.path_score(crf, emissions, [len(tags)], torch.tensor(tags)).tolist() == [-np.inf]


@pytest.mark.parametrize("n_labels", SIZES)
@pytest.mark.parametrize("restricted", [False, True])
def test_loss_of_full_annotation_equals_brute_force(n_labels, restricted):
    crf = brute.random_crf(n_labels)
    emissions = brute.random_emissions(crf, LENGTHS).requires_grad_()
    tags = brute.random_tags(crf, LENGTHS, seed=2)
    possible = brute.random_mask(crf, LENGTHS, seed=2) if restricted else None
    found = crf.loss(emissions, LENGTHS, tags=tags, possible=possible)
    reference = brute.log_partition(crf, emissions, LENGTHS, possible) - brute.path_score(crf, emissions, LENGTHS, tags)
    assert_close(found, reference)
    assert (found > -1e-12).all()
    assert_same_gradients(found.sum(), reference.sum(), crf, emissions)


@pytest.mark.parametrize("n_labels", SIZES)
@pytest.mark.parametrize("restricted", [False, True])
def test_loss_of_partial_annotation_equals_brute_force(n_labels, restricted):
    crf = brute.random_crf(n_labels)
    emissions = brute.random_emissions(crf, LENGTHS).requires_grad_()
    allowed = brute.random_mask(crf, LENGTHS, seed=5)
    path = torch.nn.functional.one_hot(brute.random_tags(crf, LENGTHS, seed=5), crf.layout.n_tags).bool()
    possible = brute.random_mask(crf, LENGTHS, seed=6) | path if restricted else None
    compatible = allowed if possible is None else allowed & possible
    compatible_score = brute.log_partition(crf, emissions, LENGTHS, compatible)
    found = crf.loss(emissions, LENGTHS, allowed=allowed, possible=possible)
    reference = brute.log_partition(crf, emissions, LENGTHS, possible) - compatible_score
    assert torch.isfinite(reference).all()
    assert_close(found, reference)
    assert_same_gradients(found.sum(), reference.sum(), crf, emissions)


def test_loss_and_gradients_without_annotation_are_zero():
    crf = brute.random_crf(2)
    emissions = brute.random_emissions(crf, LENGTHS).requires_grad_()
    loss = crf.loss(emissions, LENGTHS, allowed=torch.ones(emissions.shape, dtype=torch.bool))
    assert_close(loss, torch.zeros_like(loss))
    for gradient in brute.gradients(loss.sum(), crf, emissions):
        assert_close(gradient, torch.zeros_like(gradient), atol=1e-12, rtol=0)


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_loss_of_empty_sequences_is_zero(lengths):
    crf = brute.random_crf(2)
    emissions = torch.zeros(0, crf.layout.n_tags, dtype=torch.float64, requires_grad=True)
    loss = crf.loss(emissions, lengths, tags=torch.zeros(0, dtype=torch.long))
    loss.sum().backward()
    assert loss.tolist() == [0.0] * len(lengths)
    assert crf.log_partition(emissions, lengths).tolist() == [0.0] * len(lengths)
    assert not crf.outside.grad.any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_emissions_yield_float32_loss(dtype):
    crf = CRF(2)
    half = brute.random_emissions(crf, LENGTHS).to(dtype).requires_grad_()
    single = half.detach().float().requires_grad_()
    tags = brute.random_tags(crf, LENGTHS)
    found, expected = (crf.loss(emissions, LENGTHS, tags=tags) for emissions in (half, single))
    assert found.dtype == torch.float32
    assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), half)
    (reference,) = torch.autograd.grad(expected.sum(), single)
    assert gradient.dtype == dtype
    assert_close(gradient, reference.to(dtype))


def test_autocast_does_not_affect_forward_recursion():
    crf = brute.random_crf(2).float()
    emissions = brute.random_emissions(crf, LENGTHS).float().requires_grad_()
    tags = brute.random_tags(crf, LENGTHS)
    with torch.autocast("cpu", torch.bfloat16):
        cast = crf.loss(emissions, LENGTHS, tags=tags).sum()
        cast_gradients = brute.gradients(cast, crf, emissions)
    plain = crf.loss(emissions, LENGTHS, tags=tags).sum()
    assert_close(cast, plain)
    for found, expected in zip(cast_gradients, brute.gradients(plain, crf, emissions), strict=True):
        assert_close(found, expected)


def test_float32_loss_of_long_text_is_close_to_float64():
    exact, n_tokens = brute.random_crf(2), 3000
    emissions = brute.random_emissions(exact, [n_tokens], scale=5.0)
    tags = torch.full((n_tokens,), exact.layout.outside)
    wide, narrow = emissions.clone().requires_grad_(), emissions.float().requires_grad_()
    expected = exact.loss(wide, [n_tokens], tags=tags).sum()
    expected.backward()
    single = brute.random_crf(2).float()
    found = single.loss(narrow, [n_tokens], tags=tags).sum()
    found.backward()
    assert_close(found.double(), expected, rtol=1e-6, atol=0)
    assert_close(narrow.grad.double(), wide.grad, rtol=0, atol=1e-5)
    assert_close(single.outside.grad.double(), exact.outside.grad, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("seed", range(4))
def test_log_partition_is_exact_for_very_large_transitions(seed):
    crf = brute.random_crf(2, seed=seed, scale=300.0).float()
    doubled = brute.random_crf(2, seed=seed, scale=300.0).float().double()
    emissions = brute.random_emissions(crf, LENGTHS).float().requires_grad_()
    wide = emissions.detach().double().requires_grad_()
    found, reference = crf.log_partition(emissions, LENGTHS), brute.log_partition(doubled, wide, LENGTHS)
    assert_close(found.double(), reference, rtol=1e-6, atol=1e-3)
    for gradient, expected in zip(
        brute.gradients(found.sum(), crf, emissions), brute.gradients(reference.sum(), doubled, wide), strict=True
    ):
        assert_close(gradient.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_loss_of_extreme_emissions_is_exact(seed):
    crf = brute.random_crf(2).float()
    emissions = (brute.random_emissions(crf, LENGTHS, seed=seed).sign() * 1e4).float().requires_grad_()
    allowed = brute.random_mask(crf, LENGTHS, seed=seed)
    found = crf.loss(emissions, LENGTHS, allowed=allowed)
    wide = emissions.detach().double().requires_grad_()
    doubled = brute.random_crf(2).float().double()
    reference = brute.log_partition(doubled, wide, LENGTHS) - brute.log_partition(doubled, wide, LENGTHS, allowed)
    # The scores are about 40,000, where adjacent float32 numbers differ by 0.004.
    assert_close(found.double(), reference, rtol=1e-5, atol=0.01)
    for gradient, expected in zip(
        brute.gradients(found.sum(), crf, emissions), brute.gradients(reference.sum(), doubled, wide), strict=True
    ):
        assert_close(gradient.double(), expected, rtol=0, atol=0.02)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradient_is_exact_if_last_emission_dominates(sign):
    """The emission of the last token outweighs the emissions of all other tokens."""
    crf = brute.random_crf(1).float()
    layout, n_tokens = crf.layout, 5
    emissions = torch.zeros(n_tokens, layout.n_tags)
    emissions[:, layout.continuers] = -300.0 * sign
    emissions[-1, layout.end] = 5000.0
    emissions.requires_grad_()
    wide = emissions.detach().double().requires_grad_()
    doubled = brute.random_crf(1).float().double()
    (found,) = torch.autograd.grad(crf.log_partition(emissions, [n_tokens]).sum(), emissions)
    (reference,) = torch.autograd.grad(brute.log_partition(doubled, wide, [n_tokens]).sum(), wide)
    assert_close(found.double(), reference, rtol=0, atol=1e-3)


def test_emission_of_minus_infinity_masks_tag():
    crf = brute.random_crf(2)
    emissions = brute.random_emissions(crf, LENGTHS).requires_grad_()
    allowed = brute.random_mask(crf, LENGTHS)
    masked_emissions = emissions.detach().masked_fill(~allowed, -torch.inf).requires_grad_()
    found, expected = crf.log_partition(masked_emissions, LENGTHS), crf.log_partition(emissions, LENGTHS, allowed)
    assert_close(found, expected)
    (gradient,), (reference,) = (
        torch.autograd.grad(total.sum(), leaf) for total, leaf in ((found, masked_emissions), (expected, emissions))
    )
    assert_close(gradient, reference)


@pytest.mark.parametrize("scale", [1.0, 60.0], ids=["moderate", "extreme transitions"])
def test_loss_of_impossible_annotation_is_infinite_without_nan(scale):
    crf = brute.random_crf(1, scale=scale)
    lengths = [2, 3]
    emissions = brute.random_emissions(crf, lengths).requires_grad_()
    allowed = torch.ones(emissions.shape, dtype=torch.bool)
    allowed[0, : crf.layout.n_open] = False
    partial = crf.loss(emissions, lengths, allowed=allowed)
    full = crf.loss(emissions, lengths, tags=torch.tensor([0, 0, 1, 1, 1]))
    assert partial[0].isposinf()
    assert full[0].isposinf()
    assert torch.isfinite(partial[1])
    for loss in (partial, full):
        assert all(torch.isfinite(gradient).all() for gradient in brute.gradients(loss.sum(), crf, emissions))


def test_nan_in_emissions_propagates_to_log_partition():
    crf = CRF(1)
    emissions = torch.zeros(3, crf.layout.n_tags)
    emissions[1, crf.layout.outside] = torch.nan
    assert crf.log_partition(emissions, [3]).isnan().all()


def test_no_grad_and_frozen_weights_disable_gradients():
    crf = CRF(1)
    with torch.no_grad():
        loss = crf.loss(torch.zeros(2, crf.layout.n_tags), [2], tags=torch.tensor([1, 1]))
    assert not loss.requires_grad
    crf.requires_grad_(False)
    assert not crf.log_partition(torch.zeros(2, crf.layout.n_tags), [2]).requires_grad


def test_emission_gradients_are_computed_with_frozen_weights():
    crf = brute.random_crf(1).requires_grad_(False)
    emissions = brute.random_emissions(crf, [3]).requires_grad_()
    crf.log_partition(emissions, [3]).sum().backward()
    assert_close(emissions.grad, brute.token_marginals(crf, emissions.detach(), [3]))


def test_initial_weights_make_all_paths_equally_likely():
    crf = CRF(2)
    log_z = crf.log_partition(torch.zeros(4, crf.layout.n_tags), [4])
    assert_close(log_z, torch.tensor([float(np.log(len(brute.all_paths(crf.layout, 4))))]))


@pytest.mark.parametrize("old", [0, 1, 2])
def test_resized_crf_preserves_scores_of_existing_labels(old):
    crf = brute.random_crf(old)
    extended = crf.with_labels(3)
    tags = torch.from_numpy(crf.layout.within(extended.layout))
    emissions = brute.random_emissions(crf, LENGTHS)
    wide = torch.full((len(emissions), extended.layout.n_tags), -torch.inf, dtype=torch.float64)
    wide[:, tags] = emissions
    assert_close(extended.log_partition(wide, LENGTHS), crf.log_partition(emissions, LENGTHS))
    assert extended.start.dtype == crf.start.dtype
    assert all(weight.requires_grad and weight.is_leaf for weight in extended.parameters())


def test_resized_crf_initializes_new_labels_with_zeros():
    extended = brute.random_crf(1).with_labels(2)
    layout = extended.layout
    new_closers = [layout.single.start + 1 - layout.outside, layout.end.start + 1 - layout.outside]
    assert not extended.start[layout.begin.start + 1]
    assert not extended.end[new_closers].any()
    assert not extended.outside[new_closers].any()
    assert not extended.outside[:, [layout.begin.start + 1, layout.single.start + 1]].any()
    assert not extended.inside[:, [1, 3]].any()


def test_resizing_to_fewer_labels_raises_error():
    with pytest.raises(ValueError, match="with 3 entity types cannot be reduced to 2"):
        CRF(3).with_labels(2)


@pytest.mark.parametrize("student_types", [1, 2])
@pytest.mark.parametrize("restricted", [False, True])
def test_cross_entropy_equals_brute_force(student_types, restricted):
    teacher, student = brute.random_crf(1, seed=5), brute.random_crf(student_types, seed=6)
    teacher_emissions = brute.random_emissions(teacher, LENGTHS, seed=7)
    emissions = brute.random_emissions(student, LENGTHS, seed=8).requires_grad_()
    tags = torch.from_numpy(teacher.layout.within(student.layout))
    possible = brute.random_mask(teacher, LENGTHS) if restricted else None
    wider = None
    if possible is not None:
        wider = torch.ones(emissions.shape, dtype=torch.bool)
        wider[:, tags] = possible
    found = cross_entropy(teacher, teacher_emissions, student, emissions, LENGTHS, wider)
    reference = brute.log_partition(student, emissions, LENGTHS, wider).sum()
    paths_and_scores = brute.paths_and_scores(teacher, teacher_emissions, LENGTHS, possible)
    for (paths, scores), part in zip(paths_and_scores, emissions.split(LENGTHS), strict=True):
        reference = reference - scores.softmax(0).detach() @ brute.path_scores(student, part, tags.numpy()[paths])
    assert_close(found, reference)
    assert_same_gradients(found, reference, student, emissions)


def test_cross_entropy_gradient_is_difference_of_marginals():
    teacher, student = brute.random_crf(2, seed=5), brute.random_crf(2, seed=6)
    teacher_emissions = brute.random_emissions(teacher, LENGTHS, seed=7)
    emissions = brute.random_emissions(student, LENGTHS, seed=8).requires_grad_()
    cross_entropy(teacher, teacher_emissions, student, emissions, LENGTHS).backward()
    teacher_marginals = brute.computed_marginals(teacher, teacher_emissions, LENGTHS)
    assert_close(emissions.grad, brute.computed_marginals(student, emissions, LENGTHS) - teacher_marginals)
    assert all(weight.grad is None for weight in teacher.parameters())


def test_teacher_with_more_labels_than_student_raises_error():
    teacher, student = CRF(2), CRF(1)
    with pytest.raises(ValueError, match="2 entity types cannot be extended to a layout for only 1"):
        cross_entropy(teacher, torch.zeros(1, 9), student, torch.zeros(1, 5), [1])


@pytest.mark.parametrize(
    ("shape", "lengths", "message"),
    [
        ((3, 8), [3], r"shape \(tokens, 9\) for 2 entity types, got \(3, 8\)"),
        ((3,), [3], r"got \(3,\)"),
        ((3, 9), [2], "got 2 for 3 tokens"),
        ((3, 9), [4, -1], "cannot be negative, got -1"),
    ],
)
def test_invalid_shapes_and_lengths_raise_error(shape, lengths, message):
    with pytest.raises(ValueError, match=message):
        CRF(2).log_partition(torch.zeros(shape), lengths)


@pytest.mark.parametrize("annotation", [{}, {"tags": torch.ones(1).long(), "allowed": torch.ones(1, 5).bool()}])
def test_loss_requires_either_tags_or_mask(annotation):
    with pytest.raises(ValueError, match="either tags or allowed"):
        CRF(1).loss(torch.zeros(1, 5), [1], **annotation)
