"""Test the optimized attention of spans (FLAT and MECT) against the equations of the papers, sentence by sentence."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lattices import lattice_of, random_lattice, sentences_of
from paper_equations import assert_same, reference_span_attention
from torch import Tensor
from torch.utils._pytree import tree_leaves

from spacy_tener.architectures.flat import flat_torch as spans
from spacy_tener.architectures.flat import plans as span_plan
from spacy_tener.architectures.flat import span_groups_torch as span_groups
from spacy_tener.architectures.flat.flat_config import DISTANCES
from spacy_tener.architectures.flat.flat_torch import (
    SpanAttention,
    SpanPositions,
    SpanProjections,
    attend_spans,
    pad_projections,
    span_map,
)
from spacy_tener.architectures.flat.plans import plan_spans
from spacy_tener.architectures.flat.span_groups_torch import PaddedGroups
from spacy_tener.embedders.lattice import Lattice

WIDTH = 24
LENGTHS = [7, 1, 0, 40, 12]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"distances": ("hh", "tt")},
    {"n_positions": 100},
    {"n_positions": 60, "distances": ("hh", "tt")},
    {"key_projection": False},
]


class Setting:
    """Attention and relative positions with random weights, and a batch of random embeddings."""

    def __init__(self, lattice: Lattice, *, n_heads: int = 3, width: int = WIDTH, **options: Any) -> None:
        torch.manual_seed(0)
        distances, self.dropout = options.pop("distances", DISTANCES), options.pop("dropout", 0.0)
        self.attention = SpanAttention(width=width, n_heads=n_heads, **options).double()
        if self.attention.random is not None:
            # The initial values of random attention are too small to have a visible effect.
            torch.nn.init.normal_(self.attention.random.blocks)
        self.positions = SpanPositions(width=width, distances=distances).double()
        self.lattice = lattice
        self.characters, self.words, self.other_stream = (
            torch.randn(n, width, dtype=torch.float64, requires_grad=True)
            for n in (lattice.n_characters, lattice.n_words, lattice.n_characters + lattice.n_words)
        )

    @property
    def leaves(self) -> list[Tensor]:
        parameters = [*self.attention.parameters(), *self.positions.parameters()]
        return [self.characters, self.words, self.other_stream, *parameters]

    def project(self, *, word_queries: bool, cross_attention: bool = False) -> tuple[SpanProjections, PaddedGroups]:
        plan = plan_spans(self.lattice, word_queries=word_queries)
        groups = PaddedGroups.of(plan.character_groups + plan.word_groups, len(plan.distances), "cpu")
        relative = self.positions(torch.from_numpy(plan.distances), plan.longest)
        rows = torch.cat((self.characters, self.words))
        queries = self.other_stream if cross_attention else rows
        n_queries = None if word_queries else self.lattice.n_characters
        return self.attention.project(queries[:n_queries], rows, relative, groups), groups

    def attend(self, *, word_queries: bool, cross_attention: bool = False) -> Tensor:
        """Return the values of all characters, and of all words if they are queries."""
        projections, groups = self.project(word_queries=word_queries, cross_attention=cross_attention)
        return attend_spans(projections, groups, self.dropout).flatten(1)

    def reference(self, *, word_queries: bool, cross_attention: bool = False) -> Tensor:
        """Compute the same output with the equations of the paper."""
        rows = torch.cat((self.characters, self.words))
        queries = self.other_stream if cross_attention else rows
        lengths, counts = self.lattice.lengths.tolist(), self.lattice.counts.tolist()

        def split(x: Tensor) -> list[Tensor]:
            characters, words = x.split((sum(lengths), sum(counts)))
            return [torch.cat(parts) for parts in zip(characters.split(lengths), words.split(counts), strict=True)]

        mixed = [
            reference_span_attention(self.attention, self.positions, x, q, torch.from_numpy(spans))
            for x, q, spans in zip(split(rows), split(queries), sentences_of(self.lattice), strict=True)
        ]
        characters, words = zip(*(x.split((n, len(x) - n)) for x, n in zip(mixed, lengths, strict=True)), strict=True)
        return torch.cat(characters + words if word_queries else characters)


@pytest.mark.parametrize("word_queries", [False, True])
@pytest.mark.parametrize("cross_attention", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_span_attention_equals_paper_equations(
    options: dict[str, Any], cross_attention: bool, word_queries: bool
) -> None:
    setting, choice = (
        Setting(random_lattice(LENGTHS), **options),
        {"word_queries": word_queries, "cross_attention": cross_attention},
    )
    assert_same(setting.attend(**choice), setting.reference(**choice), setting.leaves)


@pytest.mark.parametrize("limit", [1, 5, 1000])
def test_group_size_does_not_change_output(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(random_lattice(LENGTHS), n_positions=20)
    expected = setting.attend(word_queries=True)
    monkeypatch.setattr(span_plan, "MAX_QUERIES", limit)
    assert_same(setting.attend(word_queries=True), expected, setting.leaves)


@pytest.mark.parametrize(("bucket_cost", "limit"), [(0, 1), (1 << 30, 1 << 30), (1 << 30, 20_000)])
def test_padding_of_groups_does_not_change_output(
    bucket_cost: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = Setting(random_lattice(LENGTHS), n_positions=20)
    expected = setting.attend(word_queries=True)
    monkeypatch.setitem(span_groups.SPAN_PAIRS_PER_BUCKET, "cpu", bucket_cost)
    monkeypatch.setitem(span_groups.MAX_PAIRS, "cpu", limit)
    _, groups = setting.project(word_queries=True)
    for bucket in groups.buckets:
        n_groups, n_queries, n_keys, n_columns = bucket.shape
        assert n_groups == 1 or n_groups * n_queries * (n_keys + n_columns) <= 2 * limit
    assert_same(setting.attend(word_queries=True), expected, setting.leaves)


BATCHES = {
    "no words": lattice_of((5, []), (3, [])),
    "one character": lattice_of((1, [])),
    "one character and its word": lattice_of((1, [(0, 0)])),
    "long words": lattice_of((30, [(0, 29), (0, 14), (3, 28)]), (9, [(0, 8)])),
    "words with the same start": lattice_of((8, [(2, 3), (2, 4), (2, 5), (2, 6)])),
    "the same word twice": lattice_of((6, [(1, 3), (1, 3), (0, 1)])),
    "words in any order": lattice_of((20, [(15, 18), (2, 3), (17, 18), (0, 4), (9, 10)])),
    "many words": random_lattice([25], density=2.0),
}


@pytest.mark.parametrize("word_queries", [False, True])
@pytest.mark.parametrize("name", BATCHES)
def test_unusual_lattices_equal_paper_equations(name: str, word_queries: bool) -> None:
    setting = Setting(BATCHES[name])
    expected = setting.reference(word_queries=word_queries)
    assert_same(setting.attend(word_queries=word_queries), expected, setting.leaves)


@pytest.mark.parametrize("word_queries", [False, True])
def test_gradients_with_dropout_equal_finite_differences(word_queries: bool) -> None:
    setting = Setting(lattice_of((3, [(0, 1)]), (2, [(0, 1)])), n_heads=2, width=4, dropout=0.4)

    def attend(*_: Tensor) -> Tensor:
        torch.manual_seed(2)
        return setting.attend(word_queries=word_queries)

    leaves = [leaf for leaf in setting.leaves if leaf is not setting.other_stream]
    assert torch.autograd.gradcheck(attend, leaves, fast_mode=True)


def test_checkpointing_finds_all_tensors_of_heads() -> None:
    projections, _ = Setting(random_lattice(LENGTHS), n_positions=30).project(word_queries=True)
    assert sum(isinstance(leaf, torch.Tensor) for leaf in tree_leaves(projections)) == len(projections._fields)


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_recomputed_attention_maps_give_same_output(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(random_lattice(LENGTHS), n_positions=30, dropout=p)
    torch.manual_seed(1)
    expected = setting.attend(word_queries=True)
    monkeypatch.setattr(spans, "MAX_UNCHUNKED_LENGTH", 8)
    torch.manual_seed(1)
    assert_same(setting.attend(word_queries=True), expected, setting.leaves, within=1e-12)


def test_attention_weights_equal_manual_calculation() -> None:
    """Use one head of width 2 whose projections are the identity, and a sentence of two characters and a word."""
    lattice = lattice_of((2, [(0, 1)]))
    setting = Setting(lattice, n_heads=1, width=2)
    attention, u, v = setting.attention, [0.3, -0.2], [-0.5, 0.7]
    with torch.no_grad():
        for part in (attention.query, attention.key, attention.position):
            part.weight.copy_(torch.eye(2))
        attention.u.copy_(torch.tensor([u], dtype=torch.float64))
        attention.v.copy_(torch.tensor([v], dtype=torch.float64))
        setting.positions.fuse.weight.copy_(torch.eye(2).repeat(4, 1))
    projections, groups = setting.project(word_queries=True)
    maps = [
        span_map(padded, bucket)
        for padded, bucket in zip(pad_projections(projections, groups), groups.buckets, strict=True)
    ]
    weights = groups.join(maps)
    x, spans = torch.cat((setting.characters, setting.words)).tolist(), [(0, 0), (1, 1), (0, 1)]
    for i, query in enumerate(spans):
        scores = []
        for j, key in enumerate(spans):
            distances = [a - b for a in query for b in key]
            r = [max(sum(f(d) for d in distances), 0.0) for f in (math.sin, math.cos)]
            content = sum((x[i][n] + u[n]) * x[j][n] for n in range(2))
            scores.append(content + sum((x[i][n] + v[n]) * r[n] for n in range(2)))
        total = sum(math.exp(score) for score in scores)
        assert weights[i, 0].tolist() == pytest.approx([math.exp(score) / total for score in scores], abs=1e-12)


def test_attention_dropout_keeps_mean_output() -> None:
    setting = Setting(random_lattice([60]), dropout=0.5)
    outputs = torch.stack([setting.attend(word_queries=False).detach() for _ in range(200)])
    assert not torch.allclose(outputs[0], outputs[1])
    setting.dropout = 0.0
    assert torch.allclose(outputs.mean(0), setting.attend(word_queries=False), atol=0.15)
