from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from paper_forms import reference_scores
from torch import Tensor

from spacy_tener.batching.lattice import Lattice
from spacy_tener.layers import attention as attention_module
from spacy_tener.layers.attention import AdaptedAttention
from spacy_tener.layers.fusion import CoverSegments
from spacy_tener.layers.lattice import AtssaConfig, AtssaEncoder
from spacy_tener.layers.selection import SelectiveAttention

CHARS, WORDS = 10, 6
LENGTHS = [9, 2, 0, 30, 1]
# The rows of the paper's Table 4, the explicit sparse transformer, and what else can be chosen.
VARIANTS: dict[str, dict[str, Any]] = {
    "the paper's": {},
    "- Selective SA": {"selection": "none"},
    "- top-k": {"k": 0},
    "- AF": {"alpha": 1.0},
    "- DT": {"threshold": "fixed"},
    "explicit sparse": {"selection": "top_k"},
    "two layers": {"layers": 2},
    "pre-norm": {"layers": 2, "norm": "pre"},
    "narrow fusion": {"fusion_width": 8},
}
each_variant = pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS.keys())


def make(**options: Any) -> AtssaEncoder:
    torch.manual_seed(0)
    config = AtssaConfig(**{"width": 16, "heads": 4, "dropout": 0.0, "penalty": 0.0, **options})
    return AtssaEncoder(config, char_width=CHARS, word_width=WORDS).double()


def batch(lengths: list[int], *, words: bool = True) -> tuple[Tensor, Tensor, Lattice]:
    """Random characters under random words, two for three characters."""
    rng = np.random.default_rng(0)
    sizes = np.array(lengths, dtype=np.int64)
    counts = np.where(sizes > 1, sizes * 2 // 3, 0) if words else np.zeros_like(sizes)
    heads = rng.integers(0, np.repeat(np.maximum(sizes - 1, 1), counts))
    tails = np.minimum(heads + rng.integers(1, 4, len(heads)), np.repeat(sizes, counts) - 1)
    torch.manual_seed(1)
    chars = torch.randn(int(sizes.sum()), CHARS, dtype=torch.float64, requires_grad=True)
    rows = torch.randn(len(heads), WORDS, dtype=torch.float64, requires_grad=True)
    return chars, rows, Lattice(sizes, counts, heads, tails)


def paper_layer(x: Tensor, layer: Any) -> Tensor:
    """One post-norm context layer over one sentence at prediction, equation by equation."""
    attention, scores = layer.attention, reference_scores(layer.attention, x)
    z = torch.ones_like(scores)
    if isinstance(attention, SelectiveAttention):
        k, mean = attention.selection.k, x.mean(0).expand_as(x)
        bound = torch.full_like(scores[..., :1], torch.inf)
        if attention.selection.by == "threshold":
            matching = torch.cat((x, mean, x * mean, x - mean), dim=-1)
            made = x.new_zeros(len(x), 4) if attention.threshold is None else matching @ attention.threshold.weight.T
            bound = made.T[..., None]
        if k:
            floor = torch.sort(scores, descending=True).values[..., k - 1 : k]
            bound = torch.minimum(bound, floor) if len(x) >= k else torch.full_like(bound, -torch.inf)
        z = (scores >= bound).double()
    weights = z * scores.exp()
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1e-300)
    mixed = torch.einsum("htj,jhd->thd", weights, attention.project(x)[2]).flatten(1)
    x = F.layer_norm(x + mixed, (16,), layer.attention_norm.weight, layer.attention_norm.bias)
    parts = layer.feed_forward
    fed = parts.narrow(torch.relu(parts.widen(x)))
    return F.layer_norm(x + fed, (16,), layer.feed_forward_norm.weight, layer.feed_forward_norm.bias)


@pytest.mark.parametrize("options", [options for options in VARIANTS.values() if options.get("norm") != "pre"])
def test_prediction_is_words_fused_then_the_papers_layers(options: dict[str, Any]) -> None:
    encoder = make(**options).eval()
    chars, words, lattice = batch(LENGTHS)
    fused = encoder.fusion(chars, words, CoverSegments(lattice))
    rows = []
    for x in encoder.input(torch.cat((chars, fused), dim=-1)).split(LENGTHS):
        own = x
        if len(x):
            for layer in encoder.layers:
                own = paper_layer(own, layer)
        rows.append(own)
    assert torch.allclose(encoder(chars, words, lattice), torch.cat(rows), atol=1e-10)


@each_variant
def test_every_variant_learns_from_characters_and_words(options: dict[str, Any]) -> None:
    encoder = make(dropout=0.1, **options)
    chars, words, lattice = batch([12, 7])
    target = (torch.arange(19) % 3 == 0).double()
    optimizer = torch.optim.Adam(encoder.parameters(), lr=0.03)
    losses = []
    for _ in range(25):
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(encoder(chars, words, lattice)[:, 0], target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]
    for x in (chars, words):
        assert x.grad is not None
        assert x.grad.abs().sum() > 0


@each_variant
def test_sentences_do_not_see_each_other(options: dict[str, Any]) -> None:
    encoder = make(**options).eval()
    chars, words, lattice = batch(LENGTHS)
    whole = encoder(chars, words, lattice).split(LENGTHS)
    n_words = int(lattice.counts[:3].sum())
    own = slice(n_words, n_words + int(lattice.counts[3]))
    alone = Lattice(lattice.lengths[3:4], lattice.counts[3:4], lattice.heads[own], lattice.tails[own])
    assert torch.allclose(encoder(chars[11:41], words[own], alone), whole[3], atol=1e-12)


@each_variant
def test_prediction_is_deterministic(options: dict[str, Any]) -> None:
    encoder, inputs = make(dropout=0.3, attention_dropout=0.3, **options).eval(), batch(LENGTHS)
    assert torch.equal(encoder(*inputs), encoder(*inputs))


def test_training_is_decided_by_the_seed() -> None:
    encoder, inputs = make(dropout=0.3), batch(LENGTHS)
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        results.append(encoder(*inputs))
    assert torch.equal(results[0], results[1])
    assert not torch.allclose(results[0], results[2])


def test_words_change_what_their_characters_become() -> None:
    encoder = make().eval()
    chars, words, lattice = batch([9])
    assert not torch.allclose(encoder(chars, words, lattice), encoder(chars, words + 1.0, lattice))


@each_variant
def test_maps_and_kept_keys_are_of_each_layer_and_sentence(options: dict[str, Any]) -> None:
    encoder, inputs = make(**options).eval(), batch(LENGTHS)
    maps, kept = encoder.attention_weights(*inputs), encoder.kept_keys(*inputs)
    assert len(maps) == len(kept) == encoder.config.layers
    for of_layer, counts_of_layer in zip(maps, kept, strict=True):
        for length, weights, counts in zip(LENGTHS, of_layer, counts_of_layer, strict=True):
            assert weights.shape == (4, length, length)
            assert counts.shape == (4, length)
            assert counts.dtype == torch.int64
            assert torch.equal((weights > 0).sum(-1), counts)


def test_maps_are_those_that_prediction_uses() -> None:
    """With values that are 1 everywhere but at one character, the output of attention is that character's weight."""
    encoder = make(norm="pre").eval()
    chars, words, lattice = batch([9])
    x, *context = encoder._read(chars, words, lattice)
    layer = encoder.layers[0]
    values = layer.attention.project(layer.attention_norm(x))[2]
    mixed = layer.attention(layer.attention_norm(x), *context)
    (weights,) = encoder.attention_weights(chars, words, lattice)[0]
    assert torch.allclose(torch.einsum("htj,jhd->thd", weights, values).flatten(1), mixed, atol=1e-12)


def test_how_many_keys_are_kept_depends_on_the_choice() -> None:
    inputs = batch([30, 2])
    adaptive, top_k, every = (
        make(selection=selection).eval().kept_keys(*inputs)[0] for selection in ("adaptive", "top_k", "none")
    )
    assert (top_k[0] == 3).all()
    assert (top_k[1] == 2).all()
    assert (every[0] == 30).all()
    assert (adaptive[0] >= 3).all()
    assert adaptive[0].unique().numel() > 3


def test_the_penalty_teaches_thresholds_though_the_loss_says_nothing() -> None:
    inputs, gradients = batch([20]), []
    for penalty in (0.0, 1.0):
        encoder = make(penalty=penalty, alpha=1.0, k=0)
        torch.manual_seed(2)
        (encoder(*inputs) * 0.0).sum().backward()
        gradients.append(encoder.layers[0].attention.threshold.weight.grad)
    assert not gradients[0].any()
    assert gradients[1].any()


@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
@each_variant
def test_an_empty_batch_gives_no_rows(options: dict[str, Any], lengths: list[int]) -> None:
    encoder, inputs = make(**options), batch(lengths)
    encoded = encoder(*inputs)
    assert encoded.shape == (0, 16)
    encoded.sum().backward()
    assert [len(of_layer) for of_layer in encoder.kept_keys(*inputs)] == [len(lengths)] * encoder.config.layers


@pytest.mark.parametrize("training", [True, False])
@each_variant
def test_text_without_words_and_single_characters_are_encoded(options: dict[str, Any], training: bool) -> None:
    encoder, inputs = make(**options).train(training), batch([1, 5, 1], words=False)
    encoded = encoder(*inputs)
    assert encoded.isfinite().all()
    encoded.sum().backward()
    assert inputs[0].grad is not None
    assert inputs[0].grad.isfinite().all()


@pytest.mark.parametrize("options", [{}, {"selection": "none"}])
def test_long_sentences_are_read_in_parts(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, inputs = make(**options).eval(), batch([200, 20])
    whole = encoder(*inputs)
    monkeypatch.setattr(attention_module, "WHOLE_MAP", 16)
    monkeypatch.setattr(attention_module, "SCORES_AT_ONCE", 1)
    assert torch.allclose(encoder(*inputs), whole, atol=1e-11)
    trained = encoder.train()(*inputs)
    trained.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


def test_float32_is_close_to_float64_where_the_same_keys_are_kept() -> None:
    encoder, (chars, words, lattice) = make(selection="none").eval(), batch(LENGTHS)
    expected = encoder(chars, words, lattice)
    assert torch.allclose(encoder.float()(chars.float(), words.float(), lattice).double(), expected, atol=1e-4)


def test_the_defaults_are_the_papers() -> None:
    config = AtssaConfig()
    assert (config.selection, config.k, config.alpha, config.tau, config.penalty) == ("adaptive", 3, 50.0, 1.0, 4e-6)
    encoder = AtssaEncoder(config, char_width=CHARS, word_width=WORDS)
    layer = encoder.layers[0]
    assert layer.feed_forward.widen.out_features == 4 * 128
    assert isinstance(layer.attention, SelectiveAttention)
    assert layer.attention.key_projection
    assert encoder.fusion.width == 128


def test_without_selection_the_attention_is_teners_with_projected_keys() -> None:
    attention = make(selection="none").layers[0].attention
    assert type(attention) is AdaptedAttention
    assert attention.key_projection


def test_widths_are_as_asked_for() -> None:
    encoder = make(ff_width=24, fusion_width=8)
    assert encoder.layers[0].feed_forward.widen.out_features == 24
    assert encoder.input.in_features == CHARS + 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width must be at least 1; got 0"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"heads": 0}, "heads must be at least 1"),
        ({"ff_width": 0}, "ff_width must be at least 1"),
        ({"fusion_width": 0}, "fusion_width must be at least 1"),
        ({"width": 24, "heads": 8}, "width must be an even number times heads, which is 8"),
        ({"fusion_width": 20, "heads": 8}, "fusion_width must be a multiple of heads, which is 8"),
        ({"fusion_width": 9, "heads": 1}, "fusion_width must be even"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"attention_dropout": -0.1}, "attention_dropout must be at least 0 and below 1"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"tau": 0.0}, "tau must be above 0"),
        ({"penalty": -1.0}, "penalty must be at least 0"),
        ({"k": -1}, "k must be at least 0"),
        ({"k": 0, "selection": "top_k"}, "k must be at least 1 where the k largest scores are kept"),
        ({"selection": "sparse"}, "selection must be one of 'adaptive', 'top_k', 'none'; got 'sparse'"),
        ({"threshold": 0.0}, "threshold must be one of 'adaptive', 'fixed'"),
        ({"norm": "none"}, "norm must be one of 'post', 'pre'"),
    ],
)
def test_a_wrong_setting_is_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AtssaConfig(**options)


def test_rows_must_be_those_of_the_lattice() -> None:
    encoder, (chars, words, lattice) = make(), batch([5, 4])
    with pytest.raises(ValueError, match="a row for each of the lattice's 9 characters; got 8 rows"):
        encoder(chars[:8], words, lattice)
    with pytest.raises(ValueError, match=f"a row for each of the lattice's {len(words)} words; got 1 rows"):
        encoder(chars, words[:1], lattice)


@pytest.mark.gpu
@each_variant
def test_a_gpu_gives_what_the_cpu_gives(options: dict[str, Any]) -> None:
    encoder, (chars, words, lattice) = make(**options).eval(), batch(LENGTHS)
    expected = encoder(chars, words, lattice)
    assert torch.allclose(encoder.cuda()(chars.cuda(), words.cuda(), lattice).cpu(), expected, atol=1e-9)
