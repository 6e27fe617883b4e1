"""The attention of spans in its fast form is the papers' form, for each sentence as if it were alone."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from lattices import lattice_of, random_lattice, sentences_of
from paper_forms import assert_same, reference_span_attention
from torch import Tensor

from spacy_tener.batching import span_plan
from spacy_tener.batching.lattice import Lattice
from spacy_tener.batching.span_plan import AttentionPlan
from spacy_tener.layers import spans
from spacy_tener.layers.span_plan import Queries, TensorPlan, arrange, plan_spans
from spacy_tener.layers.spans import DISTANCES, SpanAttention, SpanPositions, attend_spans, span_weights

WIDTH = 24
LENGTHS = [7, 1, 0, 40, 12]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"distances": ("hh", "tt")},
    {"places": 100},
    {"places": 60, "distances": ("hh", "tt")},
    {"key_projection": False},
]


class Setting:
    """An attention with its positions, a batch, and random floats for it."""

    def __init__(self, lattice: Lattice, *, n_heads: int = 3, width: int = WIDTH, **options: Any) -> None:
        torch.manual_seed(0)
        distances, self.dropout = options.pop("distances", DISTANCES), options.pop("dropout", 0.0)
        self.attention = SpanAttention(width=width, n_heads=n_heads, **options).double()
        if self.attention.random is not None:
            # As they begin, the numbers of random attention are too small to be seen.
            torch.nn.init.normal_(self.attention.random.blocks)
        self.positions = SpanPositions(width=width, distances=distances).double()
        self.lattice = lattice
        self.characters, self.words, self.others = (
            torch.randn(n, width, dtype=torch.float64, requires_grad=True)
            for n in (lattice.n_characters, lattice.n_words, lattice.n_characters + lattice.n_words)
        )

    @property
    def leaves(self) -> list[Tensor]:
        parameters = [*self.attention.parameters(), *self.positions.parameters()]
        return [self.characters, self.words, self.others, *parameters]

    def all_ask(self, *, cross: bool = False) -> Tensor:
        plan = plan_spans(self.lattice, word_queries=True)
        rows = arrange(plan, self.characters, self.words)
        return self.attend(plan, plan.by_all, self.others if cross else rows, rows)

    def characters_ask(self, *, cross: bool = False) -> Tensor:
        plan = plan_spans(self.lattice)
        rows = arrange(plan, self.characters, self.words)
        return self.attend(plan, plan.by_characters, self.others[plan.characters] if cross else self.characters, rows)

    def attend(self, plan: TensorPlan, asked: AttentionPlan[Queries], x: Tensor, rows: Tensor) -> Tensor:
        heads = self.attention.heads(asked, x, rows, self.positions(plan))
        return attend_spans(heads, asked.groups, self.dropout).flatten(1)

    def reference(self, *, cross: bool = False) -> list[Tensor]:
        """For each sentence. *Shape: [L, d]*"""
        plan = plan_spans(self.lattice)
        rows = arrange(plan, self.characters, self.words)
        query_input, lengths = self.others if cross else rows, plan.by_characters.lengths
        return [
            reference_span_attention(self.attention, self.positions, x, q, torch.from_numpy(spans))
            for x, q, spans in zip(
                rows.split(lengths), query_input.split(lengths), sentences_of(self.lattice), strict=True
            )
        ]

    def reference_of_characters(self, *, cross: bool = False) -> Tensor:
        pairs = zip(self.reference(cross=cross), self.lattice.lengths, strict=True)
        return torch.cat([x[:length] for x, length in pairs])


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_all_spans_get_what_the_papers_form_gives(options: dict[str, Any], cross: bool) -> None:
    setting = Setting(random_lattice(LENGTHS), **options)
    assert_same(setting.all_ask(cross=cross), torch.cat(setting.reference(cross=cross)), setting.leaves)


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("options", OPTIONS)
def test_characters_alone_get_what_they_get_among_all(options: dict[str, Any], cross: bool) -> None:
    setting = Setting(random_lattice(LENGTHS), **options)
    assert_same(setting.characters_ask(cross=cross), setting.reference_of_characters(cross=cross), setting.leaves)


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_the_size_of_groups_changes_nothing(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(random_lattice(LENGTHS), places=20)
    expected = setting.all_ask()
    monkeypatch.setattr(span_plan, "GROUP", most)
    assert_same(setting.all_ask(), expected, setting.leaves)


BATCHES = {
    "no words": lattice_of((5, []), (3, [])),
    "one character": lattice_of((1, [])),
    "one character and its word": lattice_of((1, [(0, 0)])),
    "long words": lattice_of((30, [(0, 29), (0, 14), (3, 28)]), (9, [(0, 8)])),
    "words of one place": lattice_of((8, [(2, 3), (2, 4), (2, 5), (2, 6)])),
    "the same word twice": lattice_of((6, [(1, 3), (1, 3), (0, 1)])),
    "words in any order": lattice_of((20, [(15, 18), (2, 3), (17, 18), (0, 4), (9, 10)])),
    "many words": random_lattice([25], density=2.0),
}


@pytest.mark.parametrize("name", BATCHES)
def test_special_batches_are_those_of_the_papers_form(name: str) -> None:
    setting = Setting(BATCHES[name])
    assert_same(setting.all_ask(), torch.cat(setting.reference()), setting.leaves)
    assert_same(setting.characters_ask(), setting.reference_of_characters(), setting.leaves)


@pytest.mark.parametrize("word_queries", [False, True])
def test_gradients_are_those_of_differences(word_queries: bool) -> None:
    setting = Setting(lattice_of((3, [(0, 1)]), (2, [(0, 1)])), n_heads=2, width=4)

    def attend(*_: Tensor) -> Tensor:
        return setting.all_ask() if word_queries else setting.characters_ask()

    leaves = [leaf for leaf in setting.leaves if leaf is not setting.others]
    assert torch.autograd.gradcheck(attend, leaves, fast_mode=True)


def test_a_sentence_of_600_characters_is_that_of_the_papers_form() -> None:
    """Longer than the maps that are kept for the way back."""
    setting = Setting(random_lattice([600, 3], density=0.05), n_heads=2, width=4, distances=("hh", "tt"), places=700)
    assert setting.lattice.longest > spans.WHOLE_MAP
    assert_same(setting.characters_ask(), setting.reference_of_characters(), setting.leaves, within=1e-8)


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_maps_that_are_made_again_are_those_that_were_kept(p: float, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = Setting(random_lattice(LENGTHS), places=30, dropout=p)
    torch.manual_seed(1)
    expected = setting.all_ask()
    monkeypatch.setattr(spans, "WHOLE_MAP", 8)
    torch.manual_seed(1)
    assert_same(setting.all_ask(), expected, setting.leaves, within=1e-12)


def test_scores_by_hand() -> None:
    """One head of width 2 whose projections are the identity, a character that asks itself and a word."""
    lattice = lattice_of((2, [(0, 1)]))
    setting = Setting(lattice, n_heads=1, width=2)
    attention, u, v = setting.attention, [0.3, -0.2], [-0.5, 0.7]
    with torch.no_grad():
        for part in (attention.query, attention.key, attention.position):
            part.weight.copy_(torch.eye(2))
        attention.u.copy_(torch.tensor([u], dtype=torch.float64))
        attention.v.copy_(torch.tensor([v], dtype=torch.float64))
        setting.positions.fuse.weight.copy_(torch.eye(2).repeat(4, 1))
    plan = plan_spans(lattice, word_queries=True)
    rows = arrange(plan, setting.characters, setting.words)
    heads = attention.heads(plan.by_all, rows, rows, setting.positions(plan))
    got = torch.cat([span_weights(heads, group) for group in plan.by_all.groups], dim=1)
    x, spans = rows.tolist(), [(0, 0), (1, 1), (0, 1)]
    for i, query in enumerate(spans):
        scores = []
        for j, key in enumerate(spans):
            distances = [a - b for a in query for b in key]
            r = [max(sum(f(d) for d in distances), 0.0) for f in (math.sin, math.cos)]
            content = sum((x[i][n] + u[n]) * x[j][n] for n in range(2))
            scores.append(content + sum((x[i][n] + v[n]) * r[n] for n in range(2)))
        total = sum(math.exp(score) for score in scores)
        assert got[0, i].tolist() == pytest.approx([math.exp(score) / total for score in scores], abs=1e-12)


def test_dropout_on_the_map_keeps_the_mean() -> None:
    setting = Setting(random_lattice([60]), dropout=0.5)
    assert not torch.allclose(setting.characters_ask(), setting.characters_ask())
    outputs = torch.stack([setting.characters_ask().detach() for _ in range(200)])
    setting.dropout = 0.0
    assert torch.allclose(outputs.mean(0), setting.characters_ask(), atol=0.15)


def test_gradients_go_through_the_same_dropout() -> None:
    setting = Setting(lattice_of((3, [(0, 1)])), n_heads=2, width=4, dropout=0.4)

    def attend(*_: Tensor) -> Tensor:
        torch.manual_seed(2)
        return setting.characters_ask()

    leaves = [leaf for leaf in setting.leaves if leaf is not setting.others]
    assert torch.autograd.gradcheck(attend, leaves, fast_mode=True)
