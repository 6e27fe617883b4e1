"""From characters to words: the three encoders of the TENER paper, each against its plain form."""

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
from spacy_tener.embedders.spelling_torch import CharacterEncoder, CharacterFeatures, char_cnn, rectified_maximum
from spacy_tener.nn.layers_torch import EmbeddingTables

LENGTHS = [3, 1, 0, 12, 1, 5, 3]
WIDTH = 12
SMALL = TransformerConfig(width=WIDTH, heads=2, ff_width=10, dropout=0.2)
PAPERS = TransformerConfig(width=30, heads=3, ff_width=60)
VANILLA = TransformerConfig(width=WIDTH, heads=2, ff_width=10, dropout=0.2, adapted=False)
KINDS: dict[str, Callable[[], CharacterEncoder]] = {
    "cnn": partial(char_cnn, char_width=WIDTH, filters=7, window=3, width=5),
    "wide cnn": partial(char_cnn, char_width=WIDTH, filters=7, window=5, width=5),
    "cnn of one": partial(char_cnn, char_width=WIDTH, filters=7, window=1, width=5),
    "transformer": partial(make_char_transformer, VANILLA, width=5),
    "adapted transformer": partial(make_char_transformer, SMALL, width=5),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind: str) -> CharacterEncoder:
    torch.manual_seed(0)
    return KINDS[kind]().double().eval()


def characters(lengths: list[int] = LENGTHS) -> Tensor:
    return torch.randn(sum(lengths), WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def reference(encoder: CharacterEncoder, encode: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Word by word: encode, ReLU, maximum over the characters, linear layer."""
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
        (partial(make_char_transformer, PAPERS, width=30), 6600),
    ],
    ids=["CNN", "Transformer", "adapted Transformer"],
)
def test_there_are_as_many_parameters_as_in_the_supplement_of_the_paper(
    encoder: Callable[[], CharacterEncoder], count: int
) -> None:
    assert sum(parameter.numel() for parameter in encoder().parameters()) == count


@every_kind
@pytest.mark.parametrize("lengths", [[], [0], [0, 0]])
def test_no_words_and_words_of_no_characters_are_legal(kind: str, lengths: list[int]) -> None:
    encoder = make(kind)
    x = characters(lengths).requires_grad_()
    words = encoder(x, lengths)
    assert words.shape == (len(lengths), 5)
    torch.testing.assert_close(words, encoder.out.bias.expand(len(lengths), 5))
    words.sum().backward()
    assert encoder.out.bias.grad is not None
    assert (encoder.out.bias.grad == len(lengths)).all()


@every_kind
def test_each_word_alone_goes_through_torchs_convolution_or_the_transformer_of_sentences(kind: str) -> None:
    encoder, x = make(kind), characters().requires_grad_()
    plain: dict[str, Callable[[Tensor], Tensor]] = {
        "cnn": lambda word: reference_convolution(encoder.encode.convolution, word),
        "transformer": lambda word: encoder.encode(word, [len(word)]),
    }
    expected = reference(encoder, next(encode for name, encode in plain.items() if name in kind), x)
    assert_same(encoder(x, LENGTHS), expected, [x, *encoder.parameters()], within=1e-12)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_equal_characters_share_the_gradient_of_a_maximum(sign: float) -> None:
    rows = torch.tensor([[2.0], [2.0], [1.0], [4.0], [-1.0]], dtype=torch.float64, requires_grad=True)
    (sign * rectified_maximum(rows, [3, 1, 1])).sum().backward()
    assert rows.grad is not None
    assert (sign * rows.grad).flatten().tolist() == [0.5, 0.5, 0.0, 1.0, 0.0]


def features(kind: str, *, dropout: float = 0.0, unknown: float = 0.0) -> CharacterFeatures:
    encoder = make(kind)
    tables = EmbeddingTables(
        rows={"character": 9}, widths={"character": WIDTH}, word_dropout={"character": unknown}, dropout=0.0
    )
    return CharacterFeatures(tables, encoder, dropout=dropout).double().eval()


IDS = torch.tensor([1, 2, 3, 4, 0, 5, 6, 7, 1, 1, 2, 8])
WORDS = torch.tensor([2, 0, 0, 3, 1, 2, 0])
SPELLED = [4, 1, 5, 2]


def test_tokens_of_one_word_are_dropped_apart() -> None:
    module = features("cnn", dropout=0.5).train()
    tokens = module(IDS, SPELLED, torch.zeros(200, dtype=torch.int64))
    dropped = tokens == 0
    assert 0.4 < dropped.double().mean() < 0.6
    assert not torch.equal(dropped[0], dropped[1])
    undropped = features("cnn")(IDS, SPELLED, torch.zeros(200, dtype=torch.int64))
    torch.testing.assert_close(tokens[~dropped], 2 * undropped[~dropped])


@pytest.mark.gpu
@every_kind
def test_a_gpu_gives_the_same(kind: str) -> None:
    module = features(kind)
    expected = module(IDS, SPELLED, WORDS)
    module.cuda()
    torch.testing.assert_close(module(IDS.cuda(), SPELLED, WORDS.cuda()).cpu(), expected)
