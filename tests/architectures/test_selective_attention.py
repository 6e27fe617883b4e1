"""Test the selective attention of FLAT-ATSSA against the equations of the paper."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from paper_equations import assert_same, assert_slopes, reference_selection
from torch import Tensor

from spacy_tener.architectures.flat import selection_torch as selection
from spacy_tener.architectures.flat.selection_torch import Selection, SelectiveAttention, kth_largest, logistic_noise
from spacy_tener.architectures.tener.tener_torch import RelativePositions
from spacy_tener.nn import attention_torch as attention_module
from spacy_tener.nn.ragged_torch import Ragged, Segments

WIDTH, HEADS = 12, 3
# Lengths shorter than k, an empty sentence, a single token, and lengths of several buckets.
LENGTHS = [7, 1, 0, 40, 2, 12]
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "without top-k": {"k": 0},
    "k = 1": {"k": 1},
    "k = 9": {"k": 9},
    "without amplification": {"alpha": 1.0},
    "cool": {"tau": 0.3, "alpha": 3.0},
}
parametrize_variants = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


def make(*, dropout: float = 0.0, penalty: float = 0.0, **selection: Any) -> SelectiveAttention:
    torch.manual_seed(0)
    module = SelectiveAttention(
        width=WIDTH,
        n_heads=HEADS,
        selection=Selection(**selection),
        dropout=dropout,
        penalty=penalty,
    ).double()
    # Scale the thresholds to the range of the scores, so that both terms of equation 8 are the minimum somewhere.
    module.threshold.weight.data.mul_(3.0)
    return module


def tokens(n: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(n, WIDTH, dtype=torch.float64, requires_grad=True)


def context(lengths: list[int], like: Tensor) -> tuple[Any, ...]:
    ragged = Ragged.of(lengths, heads=HEADS)
    return ragged, RelativePositions.of(ragged, WIDTH // HEADS, like), Segments.of_sequences(ragged.lengths)


def run(module: SelectiveAttention, x: Tensor, lengths: list[int]) -> Tensor:
    mixed: Tensor = module(x, *context(lengths, x))
    return mixed


def reference_batch(module: SelectiveAttention, x: Tensor, lengths: list[int], *, samples: bool) -> Tensor:
    parts = []
    for sentence in x.split(lengths):
        noise = sentence.new_zeros(HEADS, len(sentence), len(sentence)) if samples else None
        parts.append(reference_selection(module, sentence, noise)[0] if len(sentence) else sentence)
    return torch.cat(parts)


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train without noise, so that z is b with the temperature tau."""
    monkeypatch.setattr(selection, "logistic_noise", torch.zeros_like)


@pytest.fixture
def chunked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute the attention of sentences longer than 4 in chunks of 32 queries."""
    monkeypatch.setattr(attention_module, "MAX_UNCHUNKED_LENGTH", 4)
    monkeypatch.setattr(attention_module, "SCORES_PER_CHUNK", 1)


@parametrize_variants
def test_prediction_equals_paper_equations(options: dict[str, Any]) -> None:
    module, x = make(**options).eval(), tokens(sum(LENGTHS))
    expected = reference_batch(module, x, LENGTHS, samples=False)
    assert (run(module, x, LENGTHS) - expected).abs().max() < 1e-10


@parametrize_variants
def test_training_output_equals_paper_equations_for_same_noise(options: dict[str, Any]) -> None:
    module, x = make(**options), tokens(9)
    torch.manual_seed(5)
    noise = logistic_noise(x.new_empty(1, HEADS, 9, 9))[0]
    torch.manual_seed(5)
    assert_same(run(module, x, [9]), reference_selection(module, x, noise)[0], [x, *module.parameters()], within=1e-8)


@pytest.mark.usefixtures("no_noise")
@parametrize_variants
def test_padding_does_not_affect_training(options: dict[str, Any]) -> None:
    """Padding is neither a key, nor part of the mean, nor among the k largest scores."""
    module, x = make(**options), tokens(sum(LENGTHS))
    got, expected = run(module, x, LENGTHS), reference_batch(module, x, LENGTHS, samples=True)
    assert_same(got, expected, [x, *module.parameters()], within=1e-8)


@pytest.mark.usefixtures("no_noise")
@pytest.mark.parametrize("options", [{}, {"k": 0, "alpha": 1.0}, {"tau": 2.0}])
def test_penalty_gradient_equals_regularization_term_of_paper(options: dict[str, Any]) -> None:
    x, penalty = tokens(sum(LENGTHS)), 0.7
    module, unpenalized = make(penalty=penalty, **options), make(**options)
    outputs = [run(attention, x, LENGTHS) for attention in (module, unpenalized)]
    assert torch.equal(*outputs)
    term = x.new_zeros(())
    for sentence in x.split(LENGTHS):
        if length := len(sentence):
            z = reference_selection(module, sentence, sentence.new_zeros(HEADS, length, length))[2]
            term = term + penalty * z.sum() / length / len(LENGTHS)  # equation 19, averaged over sentences
    variables = [x, *module.parameters()]
    expected_gradients = torch.autograd.grad(term, variables, materialize_grads=True)
    with_penalty = torch.autograd.grad(outputs[0].sum(), variables)
    without_penalty = torch.autograd.grad(outputs[1].sum(), [x, *unpenalized.parameters()])
    assert any(gradient.abs().max() > 1e-3 for gradient in expected_gradients)
    for a, b, c in zip(with_penalty, without_penalty, expected_gradients, strict=True):
        assert (a - b - c).abs().max() < 1e-9
    assert module.penalty.pop_value() == pytest.approx(term.item())
    assert module.penalty.pop_value() == unpenalized.penalty.pop_value() == 0.0


@pytest.mark.parametrize("training", [True, False])
def test_query_without_selected_keys_outputs_zeros(training: bool) -> None:
    module, x = make(k=0).train(training), tokens(6)
    module.thresholds = lambda x, sentences: x.new_full((6, HEADS), 1e4)  # type: ignore[method-assign]
    mixed = run(module, x, [6])
    assert not mixed.any()
    mixed.sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("alpha", [1.0, 4.0])
@pytest.mark.parametrize("margin", [-0.6, 0.0, 0.25])
def test_key_selection_probability_equals_equation_9(alpha: float, margin: float) -> None:
    """At a temperature near 0, every z is 0 or 1."""
    n = 200
    scores = torch.full((1, 1, n, n), margin, dtype=torch.float64)
    per_query = torch.zeros(1, 1, n, 2, dtype=torch.float64)
    torch.manual_seed(0)
    weights = Selection(k=0, alpha=alpha, tau=1e-6).sample(scores, per_query)
    expected = 1 / (1 + math.exp(-alpha * margin))
    # The tolerance is 5 standard deviations of the mean of 40,000 samples.
    assert abs((weights > 0).double().mean() - expected) < 5 * (expected * (1 - expected)) ** 0.5 / n


def test_noise_has_logistic_distribution() -> None:
    torch.manual_seed(0)
    noise = logistic_noise(torch.empty(1000, 401))
    assert noise.shape == (1000, 401)
    assert abs(noise.mean()) < 5 * math.pi / 3**0.5 / noise.numel() ** 0.5
    for value in (-4.0, -1.0, 0.5, 3.0):
        expected = 1 / (1 + math.exp(-value))
        assert abs((noise < value).double().mean() - expected) < 5 * (expected * (1 - expected) / noise.numel()) ** 0.5
    neighbours = torch.corrcoef(noise[:, :400].reshape(-1, 4).double().T)
    assert (neighbours - torch.eye(4, dtype=torch.float64)).abs().max() < 0.02


@pytest.mark.parametrize("k", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 13, 54, 200])
def test_kth_largest_supports_any_row_length(k: int, length: int) -> None:
    torch.manual_seed(0)
    distinct = torch.randn(2, 3, 7, length)
    repeated = torch.randint(0, 4, (2, 3, 7, length)).float()
    for x in (distinct, repeated):
        got = kth_largest(x, k)
        assert got.shape == (2, 3, 7, 1)
        if k > length:
            assert (got == -torch.inf).all()
        else:
            assert torch.equal(got, x.sort(dim=-1, descending=True).values[..., k - 1 : k])


@pytest.mark.usefixtures("no_noise")
def test_tied_scores_share_gradient_of_kth_largest() -> None:
    """The gradient must not depend on which of several keys with equal scores is the k-th."""
    scores = torch.tensor([[[[1.0, 1.0, 1.0, 2.0]]]], dtype=torch.float64, requires_grad=True)
    per_query = torch.tensor([[[[5.0, 0.5]]]], dtype=torch.float64)
    weights = Selection(k=3, alpha=1.0).sample(scores, per_query)
    (gradient,) = torch.autograd.grad(weights, scores, torch.zeros_like(weights))
    z = torch.sigmoid(scores.detach() - 1.0)
    slopes = 0.5 * z * (1 - z)  # gradients of the penalty with respect to the scores
    fractions = torch.tensor([1 / 3, 1 / 3, 1 / 3, 0.0], dtype=torch.float64)
    assert torch.allclose(gradient, slopes - slopes.sum() * fractions, atol=1e-12)


@pytest.mark.usefixtures("no_noise", "chunked")
@pytest.mark.parametrize("options", [{}, {"k": 0}, {"penalty": 0.3}])
def test_chunking_changes_neither_training_nor_prediction(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths = [40, 70, 33, 3]
    module, x = make(**options), tokens(sum(lengths))
    trained, predicted = run(module, x, lengths), run(module.eval(), x, lengths)
    monkeypatch.setattr(attention_module, "MAX_UNCHUNKED_LENGTH", 512)
    assert_same(predicted, run(module, x, lengths), [x])
    assert_same(trained, run(module.train(), x, lengths), [x, *module.parameters()])


@pytest.mark.parametrize("training", [True, False])
def test_scores_of_long_sentences_are_computed_in_chunks(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def record_size(x: Tensor, k: int) -> Tensor:
        sizes.append(x.numel())
        return kth_largest(x, k)

    monkeypatch.setattr(selection, "kth_largest", record_size)
    monkeypatch.setattr(attention_module, "SCORES_PER_CHUNK", 1 << 14)
    length = 700
    module, x = make().train(training), tokens(length)
    run(module, x, [length]).sum().backward()
    assert sum(sizes) == 2 * HEADS * length**2, "computed in the forward pass, and again in the backward pass"
    assert max(sizes) <= 32 * HEADS * length


@pytest.mark.usefixtures("chunked")
def test_chunked_backward_pass_repeats_noise() -> None:
    module, x = make(alpha=1.0, dropout=0.2), tokens(40)

    def seeded(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return run(module, x, [40])

    assert_slopes(seeded, x)
