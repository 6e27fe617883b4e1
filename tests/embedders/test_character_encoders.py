"""Test the three character encoders of the TENER paper against reference implementations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from paper_equations import assert_same, reference_convolution
from torch import Tensor

from spacy_tener.architectures.tener.tener import make_char_transformer
from spacy_tener.architectures.tener.tener_config import TransformerConfig
from spacy_tener.embedders.spelling_torch import CharacterEncoder, CharacterFeatures, char_cnn, max_pool_relu
from spacy_tener.nn.layers_torch import EmbeddingTables

LENGTHS = [3, 1, 0, 12, 1, 5, 3]
WIDTH = 12
SMALL = TransformerConfig(width=WIDTH, heads=2, ff_width=10, dropout=0.2)
PAPER = TransformerConfig(width=30, heads=3, ff_width=60)
VANILLA = TransformerConfig(width=WIDTH, heads=2, ff_width=10, dropout=0.2, adapted=False)
VARIANTS: dict[str, Callable[[], CharacterEncoder]] = {
    "cnn": partial(char_cnn, char_width=WIDTH, filters=7, window=3, width=5),
    "wide cnn": partial(char_cnn, char_width=WIDTH, filters=7, window=5, width=5),
    "cnn of one": partial(char_cnn, char_width=WIDTH, filters=7, window=1, width=5),
    "transformer": partial(make_char_transformer, VANILLA, width=5),
    "adapted transformer": partial(make_char_transformer, SMALL, width=5),
}
for_all_variants = pytest.mark.parametrize("variant", VARIANTS)


def make(variant: str) -> CharacterEncoder:
    torch.manual_seed(0)
    return VARIANTS[variant]().double().eval()


def characters(lengths: list[int] = LENGTHS) -> Tensor:
    return torch.randn(sum(lengths), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def reference(encoder: CharacterEncoder, encode: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Encode word by word: encoder, ReLU, maximum over the characters, linear layer."""
    words = [
        F.relu(encode(word)).max(dim=0).values if len(word) else torch.zeros(encoder.out.in_features, dtype=x.dtype)
        for word in x.split(LENGTHS)
    ]
    return F.linear(torch.stack(words), encoder.out.weight, encoder.out.bias)


@pytest.mark.parametrize(
    ("encoder", "count"),
    [
        (partial(char_cnn, char_width=30, filters=30, window=3, width=30), 3660),
        (
            partial(make_char_transformer, TransformerConfig(width=30, heads=3, ff_width=60, adapted=False), width=30),
            8460,
        ),
        (partial(make_char_transformer, PAPER, width=30), 6600),
    ],
    ids=["CNN", "Transformer", "adapted Transformer"],
)
def test_parameter_count_equals_supplement_of_paper(encoder: Callable[[], CharacterEncoder], count: int) -> None:
    assert sum(parameter.numel() for parameter in encoder().parameters()) == count


@for_all_variants
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_empty_batches_and_words_are_supported(variant: str, lengths: list[int]) -> None:
    encoder = make(variant)
    x = characters(lengths).requires_grad_()
    words = encoder(x, lengths)
    assert words.shape == (len(lengths), 5)
    torch.testing.assert_close(words, encoder.out.bias.expand(len(lengths), 5))
    words.sum().backward()
    assert encoder.out.bias.grad is not None
    assert (encoder.out.bias.grad == len(lengths)).all()


@for_all_variants
def test_encoders_match_word_by_word_reference(variant: str) -> None:
    encoder, x = make(variant), characters().requires_grad_()
    plain: dict[str, Callable[[Tensor], Tensor]] = {
        "cnn": lambda word: reference_convolution(encoder.encode.convolution, word),
        "transformer": lambda word: encoder.encode(word, [len(word)]),
    }
    expected = reference(encoder, next(encode for name, encode in plain.items() if name in variant), x)
    assert_same(encoder(x, LENGTHS), expected, [x, *encoder.parameters()], within=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_gradient_of_maximum_is_divided_among_ties(sign: float) -> None:
    rows = torch.tensor([[2.0], [2.0], [1.0], [4.0], [-1.0]], dtype=torch.float64, requires_grad=True)
    (sign * max_pool_relu(rows, [3, 1, 1])).sum().backward()
    assert rows.grad is not None
    assert (sign * rows.grad).flatten().tolist() == [0.5, 0.5, 0.0, 1.0, 0.0]


def features(variant: str, *, dropout: float = 0.0, unknown: float = 0.0) -> CharacterFeatures:
    encoder = make(variant)
    tables = EmbeddingTables(
        rows={"character": 9}, widths={"character": WIDTH}, word_dropout={"character": unknown}, dropout=0.0
    )
    return CharacterFeatures(tables, encoder, dropout=dropout).double().eval()


IDS = torch.tensor([1, 2, 3, 4, 0, 5, 6, 7, 1, 1, 2, 8])
WORDS = torch.tensor([2, 0, 0, 3, 1, 2, 0])
SPELLED = [4, 1, 5, 2]


def test_dropout_differs_between_occurrences_of_a_word() -> None:
    module = features("cnn", dropout=0.5).train()
    tokens = module(IDS, SPELLED, torch.zeros(200, dtype=torch.int64))
    dropped = tokens == 0
    assert 0.4 < dropped.double().mean() < 0.6
    assert not torch.equal(dropped[0], dropped[1])
    undropped = features("cnn")(IDS, SPELLED, torch.zeros(200, dtype=torch.int64))
    torch.testing.assert_close(tokens[~dropped], 2 * undropped[~dropped])


@pytest.mark.gpu
@for_all_variants
def test_gpu_output_equals_cpu_output(variant: str) -> None:
    module = features(variant)
    expected = module(IDS, SPELLED, WORDS)
    module.cuda()
    torch.testing.assert_close(module(IDS.cuda(), SPELLED, WORDS.cuda()).cpu(), expected)
