"""Test the fusion of words into characters (FLAT-ATSSA) against the equations of the paper."""

from __future__ import annotations

import math

import pytest
import torch
from lattices import Words, lattice_of
from paper_equations import assert_same
from torch import Tensor

from spacy_tener.architectures.flat.atssa_torch import CoverSegments, WordFusion
from spacy_tener.architectures.flat.flat_config import AtssaConfig
from spacy_tener.embedders.lattice import Lattice

CHARS, WORDS, WIDTH, HEADS = 5, 4, 12, 3


# Sentences with nested, overlapping and repeated words, without words, without characters, and that are a single word.
SENTENCES: list[tuple[int, Words]] = [
    (7, [(0, 2), (0, 1), (2, 3), (2, 6), (5, 6), (5, 6)]),
    (3, []),
    (0, []),
    (2, [(0, 1)]),
    (4, [(1, 2)]),
]


def make(dropout: float = 0.0) -> WordFusion:
    torch.manual_seed(0)
    return WordFusion(AtssaConfig(width=WIDTH, heads=HEADS, attention_dropout=dropout), CHARS, WORDS).double()


def rows(lattice: Lattice) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    sizes = (lattice.n_characters, CHARS), (lattice.n_words, WORDS)
    chars, words = (torch.randn(*size, dtype=torch.float64, requires_grad=True) for size in sizes)
    return chars, words


def position(distance: int) -> Tensor:
    """Compute `p_d` (equation 3)."""
    values = []
    for i in range(0, WIDTH, 2):
        angle = distance / 10000 ** (i / WIDTH)
        values += [math.sin(angle), math.cos(angle)]
    return torch.tensor(values, dtype=torch.float64)


def reference_character(fusion: WordFusion, char: Tensor, i: int, words: Tensor, spans: Words) -> Tensor:
    """Compute equations 5, 13, 14 and 15 for the character at index `i` of a sentence."""
    covering = [j for j, (head, tail) in enumerate(spans) if head <= i <= tail]
    if not covering:
        return char.new_zeros(WIDTH)
    d_k, mixed = WIDTH // HEADS, []
    for h in range(HEADS):
        part = slice(h * d_k, (h + 1) * d_k)
        scores, values = [], []
        q = (fusion.query.weight @ char)[part]
        for j in covering:
            head, tail = spans[j]
            w_r = torch.cat((fusion.from_head.weight, fusion.from_tail.weight), dim=1)
            r = (w_r @ torch.cat((position(i - head), position(i - tail))))[part]
            k = (fusion.key.weight @ words[j])[part]
            scores.append(q @ k + q @ r + fusion.u[h] @ k + fusion.v[h] @ r)
            values.append((fusion.value.weight @ words[j])[part])
        mixed.append(torch.softmax(torch.stack(scores), dim=0) @ torch.stack(values))
    return torch.cat(mixed)


def reference(fusion: WordFusion, chars: Tensor, words: Tensor, sentences: list[tuple[int, Words]]) -> Tensor:
    fused_rows = []
    own_chars = chars.split([length for length, _ in sentences])
    own_words = words.split([len(spans) for _, spans in sentences])
    for characters, matched, (_, spans) in zip(own_chars, own_words, sentences, strict=True):
        fused_rows += [reference_character(fusion, char, i, matched, spans) for i, char in enumerate(characters)]
    return torch.stack(fused_rows)


def test_fusion_and_gradients_equal_paper_equations() -> None:
    fusion, lattice = make(), lattice_of(*SENTENCES)
    chars, words = rows(lattice)
    got, expected = fusion(chars, words, CoverSegments(lattice)), reference(fusion, chars, words, SENTENCES)
    assert_same(got, expected, [chars, words, *fusion.parameters()], within=1e-12)


@pytest.mark.parametrize("sentences", [[], [(0, [])], [(4, []), (2, [])]])
def test_sentences_without_words_give_zeros(sentences: list[tuple[int, Words]]) -> None:
    fusion, lattice = make(), lattice_of(*sentences)
    chars, words = rows(lattice)
    fused = fusion(chars, words, CoverSegments(lattice))
    assert torch.equal(fused, torch.zeros(lattice.n_characters, WIDTH, dtype=torch.float64))
    fused.sum().backward()
    assert chars.grad is not None
    assert not chars.grad.any()


def test_pair_count_equals_sum_of_word_lengths() -> None:
    """A character that is covered by a hundred words does not increase the cost of other characters."""
    lattice = lattice_of((1000, [(0, 1 + i % 3) for i in range(100)]))
    covers = CoverSegments(lattice)
    assert len(covers.characters.index) == len(covers.words.index) == sum(2 + i % 3 for i in range(100))
    assert covers.longest == 4


def test_attention_dropout_applies_only_in_training() -> None:
    fusion, lattice = make(dropout=0.5), lattice_of(*SENTENCES)
    chars, words = rows(lattice)
    covers = CoverSegments(lattice)
    assert not torch.allclose(fusion(chars, words, covers), fusion(chars, words, covers))
    predicted = fusion.eval()(chars, words, covers)
    assert torch.allclose(predicted, reference(fusion, chars, words, SENTENCES), atol=1e-12)
