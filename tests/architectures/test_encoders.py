"""Test all encoders in all variants: independent sequences, empty batches, dropout, seeds, training and devices."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lattices import lattice_of, random_lattice, sentences_of
from torch import Tensor, nn

from spacy_tener.architectures.flat.atssa_torch import AtssaEncoder
from spacy_tener.architectures.flat.flat_config import AtssaConfig, FlatConfig, MectConfig
from spacy_tener.architectures.flat.flat_torch import SpanEncoder
from spacy_tener.architectures.grn.grn_config import GRNConfig
from spacy_tener.architectures.grn.grn_torch import GRNEncoder
from spacy_tener.architectures.tener.tener_config import TransformerConfig
from spacy_tener.architectures.tener.tener_torch import TransformerEncoder
from spacy_tener.embedders.lattice import Lattice

LENGTHS = [9, 2, 0, 30, 1]
WIDTH, CHARS, RADICALS, WORDS = 12, 10, 4, 6
STACK = {"width": WIDTH, "heads": 3}
ENCODERS: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...], list[dict[str, Any]]]] = {
    "transformer": (
        lambda **settings: TransformerEncoder(TransformerConfig(**STACK, **settings), input_width=CHARS),
        (CHARS,),
        [
            {},
            {"layers": 2},
            {"scaled": True},
            {"adapted": False, "layers": 2},
        ],
    ),
    "GRN": (
        lambda **settings: GRNEncoder(GRNConfig(width=WIDTH, **settings), input_width=CHARS),
        (CHARS,),
        [{}, {"relation": None}, {"branches": ()}, {"branches": (3,)}],
    ),
    "FLAT": (
        lambda **settings: SpanEncoder(FlatConfig(**STACK, **settings), CHARS, WORDS),
        (CHARS, WORDS),
        [{}, {"layers": 2}, {"distances": ("hh", "tt"), "ff_width": 20}],
    ),
    "ATSSA": (
        lambda **settings: AtssaEncoder(AtssaConfig(**STACK, penalty=0.0, **settings), CHARS, WORDS),
        (CHARS, WORDS),
        [
            {},
            {"selection": "none"},
            {"k": 0},
            {"alpha": 1.0},
            {"layers": 2},
        ],
    ),
    "MECT": (
        lambda **settings: SpanEncoder(
            MectConfig(**STACK, **{"random_attention": 9, **settings}), CHARS, RADICALS, WORDS
        ),
        (CHARS, RADICALS, WORDS),
        [
            {},
            {"random_attention": 0},
            {"layers": 2},
        ],
    ),
}
VARIANTS = [(name, settings) for name, (_, _, options) in ENCODERS.items() for settings in options]
parametrize_variants = pytest.mark.parametrize(
    ("name", "settings"), VARIANTS, ids=[f"{name} {settings}" for name, settings in VARIANTS]
)
parametrize_encoders = pytest.mark.parametrize("name", ENCODERS)
Inputs = tuple[Any, ...]


def make(name: str, settings: dict[str, Any] | None = None, **overrides: Any) -> nn.Module:
    torch.manual_seed(0)
    encoder = ENCODERS[name][0](**{"dropout": 0.3, **(settings or {}), **overrides}).double().eval()
    for parameter_name, parameter in encoder.named_parameters():
        if parameter_name.endswith("blocks"):
            # The initial values of random attention are too small to have a visible effect.
            nn.init.normal_(parameter)
    return encoder


def inputs(name: str, lattice: Lattice) -> Inputs:
    """Return embeddings of characters, radicals and words as the encoder takes them, and the lattice or the lengths."""
    widths = ENCODERS[name][1]
    rows = [lattice.n_words if width == WORDS else lattice.n_characters for width in widths]
    generator = torch.Generator().manual_seed(1)
    floats = [
        torch.randn(n, width, dtype=torch.float64, generator=generator).requires_grad_()
        for n, width in zip(rows, widths, strict=True)
    ]
    return *floats, (lattice if WORDS in widths else lattice.lengths.tolist())


def convert_inputs(batch: Inputs, convert: Callable[[Tensor], Tensor]) -> Inputs:
    return *(convert(floats) for floats in batch[:-1]), batch[-1]


@parametrize_variants
def test_encoding_is_independent_of_batch(name: str, settings: dict[str, Any]) -> None:
    encoder, lattice = make(name, settings), random_lattice(LENGTHS)
    *floats, _ = inputs(name, lattice)
    together = encoder(*inputs(name, lattice)).split(LENGTHS)
    parts = [x.split(lattice.counts.tolist() if x.shape[1] == WORDS else LENGTHS) for x in floats]
    for i, places in enumerate(sentences_of(lattice)):
        words = [tuple(place) for place in places[LENGTHS[i] :].tolist()]
        alone = inputs(name, lattice_of((LENGTHS[i], words)))[-1]
        got = encoder(*(part[i] for part in parts), alone)
        assert got.shape == (LENGTHS[i], WIDTH)
        assert torch.allclose(got, together[i], atol=1e-11)


@parametrize_variants
@pytest.mark.parametrize("lengths", [[], [0], [0, 0], [1], [1, 5, 1]])
def test_batches_without_words_or_texts_are_accepted(name: str, settings: dict[str, Any], lengths: list[int]) -> None:
    encoder, batch = make(name, settings), inputs(name, lattice_of(*((length, []) for length in lengths)))
    for training in (False, True):
        encoded = encoder.train(training)(*batch)
        assert encoded.shape == (sum(lengths), WIDTH)
        assert encoded.isfinite().all()
        encoded.sum().backward()
        assert batch[0].grad.isfinite().all()


@parametrize_variants
def test_prediction_is_deterministic_and_equals_inference_mode(name: str, settings: dict[str, Any]) -> None:
    encoder, batch = make(name, settings), inputs(name, random_lattice(LENGTHS))
    before = torch.get_rng_state()
    predicted = encoder(*batch)
    assert torch.equal(predicted, encoder(*batch))
    assert torch.equal(predicted, copy.deepcopy(encoder)(*batch))
    assert torch.equal(torch.get_rng_state(), before)
    with torch.inference_mode():
        assert torch.allclose(encoder(*batch), predicted, atol=1e-12)


@pytest.mark.parametrize(
    ("name", "rates"),
    [
        *((name, {"dropout": 0.3}) for name in ENCODERS),
        *((name, {"dropout": 0.0, "attention_dropout": 0.3}) for name in ("transformer", "FLAT", "MECT")),
        ("ATSSA", {"dropout": 0.0, "attention_dropout": 0.3, "selection": "none"}),
    ],
)
def test_training_is_reproducible_by_seed(name: str, rates: dict[str, Any]) -> None:
    encoder, batch = make(name, rates).train(), inputs(name, random_lattice(LENGTHS))
    results = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        output = encoder(*batch)
        results.append([output, *torch.autograd.grad(output.square().sum(), batch[:-1])])
    assert all(torch.equal(a, b) for a, b in zip(*results[:2], strict=True))
    assert not torch.allclose(results[0][0], results[2][0])


@parametrize_encoders
def test_training_without_dropout_equals_prediction(name: str) -> None:
    encoder = make(name, {"selection": "none"} if name == "ATSSA" else {}, dropout=0.0)
    batch = inputs(name, random_lattice(LENGTHS))
    predicted = encoder(*batch)
    assert torch.allclose(encoder.train()(*batch), predicted, atol=1e-12)


@parametrize_variants
def test_all_weights_get_gradients_and_encoder_learns(name: str, settings: dict[str, Any]) -> None:
    encoder = make(name, {"dropout": 0.1, **settings}).train()
    batch = inputs(name, random_lattice([12, 7]))
    target = (torch.arange(19) % 3 == 0).double()
    # The output of a layer norm sums to a constant, so that a plain sum would have no gradient.
    (encoder(*batch) ** 3).sum().backward()
    without_gradient = [
        key for key, p in encoder.named_parameters() if p.grad is None or not p.grad.to_dense().abs().sum() > 0
    ]
    # A bias of the keys changes all scores of a query by the same amount, which cancels in softmax. Its gradient is
    # rounding noise.
    assert [key for key in without_gradient if "key.bias" not in key] == []
    assert all(x.grad.abs().sum() > 0 for x in batch[:-1])
    dense = [p for key, p in encoder.named_parameters() if not key.endswith("blocks")]
    readout = nn.Linear(WIDTH, 1).double()
    optimizer = torch.optim.Adam([*dense, *readout.parameters()], lr=0.03)
    # The learning rate decays to zero, and the loss is evaluated without dropout, so that the last loss is stable.
    n_steps = 120 if name == "GRN" else 40
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=n_steps)

    def loss(training: bool) -> Tensor:
        return F.binary_cross_entropy_with_logits(readout(encoder.train(training)(*batch))[:, 0], target)

    first = loss(training=False).item()
    for _ in range(n_steps):
        encoder.zero_grad()
        optimizer.zero_grad()
        loss(training=True).backward()
        optimizer.step()
        schedule.step()
    assert loss(training=False).item() < 0.2 * first


@pytest.mark.parametrize("name", ["transformer", "GRN"])
@pytest.mark.parametrize("sequence_type", [list, tuple, np.array, torch.tensor])
def test_lengths_accept_any_sequence_type(name: str, sequence_type: Any) -> None:
    encoder, (x, lengths) = make(name), inputs(name, random_lattice(LENGTHS))
    assert torch.equal(encoder(x, sequence_type(lengths)), encoder(x, lengths))
    with pytest.raises(ValueError, match="lengths must sum to the number of tokens: got 41 for 42 tokens"):
        encoder(x, sequence_type([*lengths[:-1], 0]))


@pytest.mark.parametrize("name", ["FLAT", "ATSSA", "MECT"])
def test_row_count_mismatch_with_lattice_raises_error(name: str) -> None:
    encoder, (*floats, lattice) = make(name), inputs(name, random_lattice([6]))
    for i, (x, unit) in enumerate(zip(floats, [*["characters"] * (len(floats) - 1), "words"], strict=True)):
        short = [*floats[:i], x[1:], *floats[i + 1 :]]
        with pytest.raises(ValueError, match=f"The lattice has {len(x)} {unit}, but got {len(x) - 1} rows"):
            encoder(*short, lattice)


@parametrize_encoders
def test_float32_output_is_close_to_float64(name: str) -> None:
    encoder = make(name, {"selection": "none"} if name == "ATSSA" else {})
    batch = inputs(name, random_lattice([200, 3]))
    expected = encoder(*batch)
    assert torch.allclose(encoder.float()(*convert_inputs(batch, Tensor.float)).double(), expected, atol=1e-4)


@pytest.mark.gpu
@parametrize_variants
def test_gpu_output_and_gradients_equal_cpu(name: str, settings: dict[str, Any]) -> None:
    encoder, batch = make(name, settings), inputs(name, random_lattice([*LENGTHS, 60]))
    expected = encoder(*batch)
    expected_gradients = torch.autograd.grad(expected.square().sum(), batch[:-1])
    on_gpu = convert_inputs(batch, lambda x: x.detach().cuda().requires_grad_())
    got = encoder.cuda()(*on_gpu)
    assert torch.allclose(got.cpu(), expected, atol=1e-8)
    for gradient_on_gpu, gradient in zip(
        torch.autograd.grad(got.square().sum(), on_gpu[:-1]), expected_gradients, strict=True
    ):
        assert torch.allclose(gradient_on_gpu.cpu(), gradient, atol=1e-8)
