"""Results of decoding under all restrictions, compared with a sum over all label sequences that the rules allow."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest
import spacy
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from spacy.tokens import Doc, Span

from spacy_tener.crf.crf_numpy import CRFPredictor
from spacy_tener.pipeline.batch_decoding import BatchDecoding
from spacy_tener.pipeline.decoding import Decoding
from spacy_tener.pipeline.entities import existing_entities
from spacy_tener.pipeline.masks import NO_ENTITIES, allowed_nested_tags, allowed_tags
from spacy_tener.pipeline.nesting import nesting_levels
from spacy_tener.pipeline.predicting import decode_depths, existing_spans
from spacy_tener.pipeline.tags import LabelIndex, index_labels
from spacy_tener.pipeline.units import view_of

LABELS, VOCAB = ("A", "B"), spacy.blank("zh").vocab
LETTERS, SPACES, ORNAMENTS = "ab", " \n", "😀"


class Recipe(NamedTuple):
    """A text, and what its tokens say.

    tokens: Each with whether a space follows it.
    spans: Start, end and kind: a label, which the model may lack, `blocked`, or `gap` for a part of an entity.
    starts: Tokens that start a sentence.
    """

    tokens: list[tuple[str, bool]]
    spans: list[tuple[int, int, str]]
    starts: list[int]

    def doc(self) -> Doc:
        words = [word for word, _ in self.tokens]
        starts: Any = [i == 0 or i in self.starts for i in range(len(words))] if self.starts else None
        doc = Doc(VOCAB, words=words, spaces=[space for _, space in self.tokens], sent_starts=starts)
        parts: dict[str, list[Span]] = {"blocked": [], "ents": []}
        taken = set[int]()
        for start, size, kind in self.spans:
            end = min(start + size, len(doc))
            if start < end and taken.isdisjoint(range(start, end)) and kind != "gap":
                taken.update(range(start, end))
                parts["blocked" if kind == "blocked" else "ents"].append(
                    Span(doc, start, end, label="" if kind == "blocked" else kind)
                )
        doc.set_ents(parts["ents"], blocked=parts["blocked"], default="missing")
        for start, size, kind in self.spans:
            end = min(start + size, len(doc))
            if kind == "gap" and any(ent.start <= start < end <= ent.end for ent in doc.ents):
                doc.spans[NO_ENTITIES] = [doc[start:end]]
        return doc


SPANS = st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from([*LABELS, "?", "blocked", "gap"]))
RECIPES = {
    "tokens": st.builds(
        Recipe,
        st.lists(st.tuples(st.sampled_from("王ab \n😀"), st.booleans()), max_size=4),
        st.lists(SPANS, max_size=3),
        st.lists(st.integers(0, 3), max_size=2),
    ),
    "characters": st.builds(
        Recipe,
        st.lists(st.tuples(st.sampled_from(["王", "王小", "ab", "a", "\n"]), st.booleans()), max_size=2),
        st.lists(SPANS, max_size=2),
        st.lists(st.integers(0, 2), max_size=1),
    ),
}


# Start, end and label of an entity of the model, and of an existing entity, in units of a view.
Entity = tuple[int, int, int]
Existing = tuple[int, int, str]


class Rules:
    """The rules for entities of a text, without masks. Spans are in units of the view."""

    def __init__(self, doc: Doc, view: str, index: LabelIndex) -> None:
        self.doc, self.index = doc, index
        by_tokens = view == "tokens"
        self.units = [(t.idx, t.idx + len(t)) for t in doc] if by_tokens else [(i, i + 1) for i in range(len(doc.text))]
        self.texts = [doc.text[start:end] for start, end in self.units]
        self.sentences = {t.idx for t in doc if t.is_sent_start}
        ents = [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
        self.preset = [(*self._units(start, end), label) for start, end, label in ents]
        blocked = [(t.idx, t.idx + len(t)) for t in doc if t.ent_iob_ == "B" and not t.ent_type_]
        self.blocked = {i for span in blocked for i in range(*self._units(*span))}
        gaps = [(span.start_char, span.end_char) for span in doc.spans.get(NO_ENTITIES, ())]
        self.gaps = {i for span in gaps for i in range(*self._units(*span))}

    def _units(self, start: int, end: int) -> tuple[int, int]:
        inside = [i for i, (first, last) in enumerate(self.units) if first >= start and last <= end]
        return inside[0], inside[-1] + 1

    def _are_joined(self, i: int) -> bool:
        """Whether a unit and the one before it are letters of one word."""
        if not 0 < i < len(self.units):
            return False
        return all(text in LETTERS for text in self.texts[i - 1 : i + 1]) and self.units[i - 1][1] == self.units[i][0]

    def can_be_entity(self, start: int, end: int, label: int) -> bool:
        """Whether a span can be an entity of a text without existing entities."""
        edges, texts = (self.texts[start], self.texts[end - 1]), self.texts[start:end]
        if any(edge in SPACES for edge in edges) or set(range(start, end)) & (self.blocked | self.gaps):
            return False
        if any(edge in ORNAMENTS for edge in edges) and label not in self.index.with_ornaments:
            return False
        if "\n" in texts and label not in self.index.over_lines:
            return False
        if (self._are_joined(start) or self._are_joined(end)) and label not in self.index.within_words:
            return False
        return not any(self.units[i][0] in self.sentences for i in range(start + 1, end))

    def own(self, existing: Existing, level: int) -> list[Entity]:
        """Return an existing entity as an entity of the model at one depth, if it can be one."""
        start, end, name = existing
        return [(start, end, LABELS.index(name))] if level == 0 and name in LABELS else []

    def is_compatible(self, entity: Entity, existing: Existing, around: Entity | None, level: int) -> bool:
        """Whether an entity can be at the same depth as an existing entity.

        around: The entity around the existing entity in the best sequence of this depth without existing entities.
        """
        start, end, label = entity
        first, last, name = existing
        if last <= start or end <= first or entity in self.own(existing, level):
            return True
        if around is None:
            return level > 0 and first <= start < end <= last
        if (start, end) == (first, last) or first < start or end < last:
            return False
        has_same_label = level == 0 and LABELS[label] == name
        ends_together = around[0] < first and around[1] == last
        return last - first == 1 or has_same_label or (start < first if ends_together else end > last)

    def sequences(self, level: int, depth: int, score: Callable[[list[Entity]], float]) -> list[list[Entity]]:
        """Return all lists of entities at one depth.

        score: The score of a list of entities.
        """
        around: dict[Existing, Entity | None] = dict.fromkeys(self.preset)
        for start, end, label in max(self._from(0, self.can_be_entity), key=score) if depth > 1 else ():
            crosses = any(first < edge < last for first, last, _ in self.preset for edge in (start, end))
            for existing in self.preset:
                first, last, _ = existing
                is_around = start <= first and last <= end and (start, end) != (first, last)
                if is_around and not crosses and all(self.can_be_entity(*own) for own in self.own(existing, level)):
                    around[existing] = start, end, label

        def is_allowed(*entity: int) -> bool:
            if any(entity in self.own(existing, level) for existing in self.preset):
                return True
            return self.can_be_entity(*entity) and all(
                self.is_compatible(entity, existing, around[existing], level) for existing in self.preset
            )

        def has_existing(entities: list[Entity]) -> bool:
            """Whether each existing entity is in a list, or has an entity around it."""
            return all(
                own in entities or any(start <= own[0] and own[1] <= end for start, end, _ in entities)
                for existing in self.preset
                for own in self.own(existing, level)
            )

        return [entities for entities in self._from(0, is_allowed) if has_existing(entities)]

    def _from(self, place: int, is_allowed: Callable[..., bool]) -> list[list[Entity]]:
        if place >= len(self.units):
            return [[]]
        found = self._from(place + 1, is_allowed)
        for end, label in itertools.product(range(place + 1, len(self.units) + 1), range(len(LABELS))):
            if is_allowed(place, end, label):
                found = found + [[(place, end, label), *rest] for rest in self._from(end, is_allowed)]
        return found


def score_of(predictor: CRFPredictor, emissions: Any, entities: list[tuple[int, int, int]]) -> float:
    """The score of one path, step by step."""
    columns = np.array(entities, dtype=np.int64).reshape(-1, 3).T
    tags, table = predictor.layout.encode(*columns, len(emissions)), predictor.transitions
    if not len(tags):
        return 0.0
    steps = sum(float(table.table[a, b]) for a, b in itertools.pairwise(tags))
    ends = float(table.start[tags[0]]) + float(table.end[tags[-1]])
    return ends + steps + float(emissions[np.arange(len(tags)), tags].astype(np.float64).sum())


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("view", ["tokens", "characters"])
@settings(
    max_examples=25, suppress_health_check=list(HealthCheck), phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(data=st.data())
def test_results_equal_sums_over_all_label_sequences(view: Any, depth: int, data: Any) -> None:
    recipes = data.draw(st.lists(RECIPES[view], min_size=1, max_size=2))
    exceptions = [data.draw(st.sets(st.integers(0, 1))) for _ in range(3)]
    check(view, depth, recipes, exceptions, data.draw(st.sampled_from([1.0, 0.5, 3.0])), data.draw(st.integers(0, 99)))


def check(view: Any, depth: int, recipes: list[Recipe], exceptions: Any, temperature: float, seed: int) -> None:
    index, docs = LabelIndex(index_labels(LABELS).hashes, *map(sorted, exceptions)), [r.doc() for r in recipes]
    views, rng = [view_of(doc, view) for doc in docs], np.random.default_rng(seed)
    assume(all(len(part) <= (4 if depth == 1 else 3) for part in views))
    layout = index.layout
    shapes = (layout.n_open, layout.n_open, (layout.n_open, layout.n_open), (2, 2 * layout.n_labels))
    start, end, outside, inside = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    predictor = CRFPredictor((start, end, outside, inside))
    lengths = [len(part) for part in views]
    emissions = rng.normal(scale=2.0, size=(depth, sum(lengths), layout.n_tags)).astype(np.float32)
    if depth == 1:
        allowed = allowed_tags(views, index)
    else:
        allowed = allowed_nested_tags(views, index, depth, partial(decode_depths, predictor, emissions, lengths))
    existing = existing_spans(views, index)
    batch = BatchDecoding(predictor, emissions, lengths, allowed, temperature, existing)
    for i, part in enumerate(views):
        decoding = Decoding(part, LABELS, batch, i, "sc", existing_entities(part))
        rules = Rules(part.doc, view, index)
        rows = decoding.emissions.reshape(depth, len(part), layout.n_tags)
        levels = []
        for level in range(depth):
            score = partial(score_of, predictor, rows[level])
            levels.append([(score(found) / temperature, found) for found in rules.sequences(level, depth, score)])
        check_text(decoding, rules, levels)


def check_text(decoding: Decoding, rules: Rules, levels: list[list[tuple[float, Any]]]) -> None:
    def offsets(entity: tuple[int, int, int]) -> tuple[int, int, str]:
        return rules.units[entity[0]][0], rules.units[entity[1] - 1][1], LABELS[entity[2]]

    existing = {(rules.units[start][0], rules.units[end - 1][1], label) for start, end, label in rules.preset}
    combinations = [
        (sum(score for score, _ in chosen), frozenset(map(offsets, itertools.chain(*(found for _, found in chosen)))))
        for chosen in itertools.product(*levels)
    ]
    scores = np.array([score for score, _ in combinations])
    probabilities = np.exp(scores - scores.max())
    probabilities /= probabilities.sum()
    expected = [(p, entities | existing) for p, (_, entities) in zip(probabilities.tolist(), combinations, strict=True)]
    # With a depth above 1, several label sequences may have the same set of entities.
    sequences_of: dict[frozenset[tuple[int, int, str]], list[float]] = defaultdict(list)
    for p, entities in expected:
        sequences_of[entities].append(p)
    readings = decoding.k_best(len(expected) + 1)
    found = [frozenset(entity.offsets for entity in reading.entities) for reading in readings]
    assert sorted(map(sorted, found)) == sorted(map(sorted, sequences_of))
    sums = [sum(sequences_of[entities]) for entities in found]
    assert [reading.probability for reading in readings] == pytest.approx(sums, abs=1e-9)
    assert sum(sums) == pytest.approx(1.0, abs=1e-9)
    highest = sorted(map(max, sequences_of.values()), reverse=True)
    for k in (1, 2, 5):
        k_best = [
            (frozenset(e.offsets for e in reading.entities), reading.probability) for reading in decoding.k_best(k)
        ]
        assert [max(sequences_of[entities]) for entities, _ in k_best] == pytest.approx(highest[:k], abs=1e-9)
        assert len({entities for entities, _ in k_best}) == len(k_best)
        for entities, p in k_best:
            assert max(sequences_of[entities]) - 1e-9 <= p <= sum(sequences_of[entities]) + 1e-9
    best = [p for p, _ in expected]
    assert {entity.offsets for entity in decoding.entities} == found[0]
    size = len(decoding.doc.text)
    spans = [(a, b, label) for a in range(size) for b in range(a + 1, size + 1) for label in (*LABELS, "?")]
    sums = [sum(p for p, entities in expected if span in entities) for span in spans]
    given_by_model = decoding.probabilities(spans)
    assert given_by_model == pytest.approx(sums, abs=1e-9)
    assert max(given_by_model, default=0.0) <= 1.0
    assert all(p == 1.0 for p, span in zip(given_by_model, spans, strict=True) if span in existing)
    marginals = decoding.marginals(1e-3)
    assert {e.offsets for e in marginals.entities} == {
        s for s, p in zip(spans, given_by_model, strict=True) if p >= 1e-3
    }
    free = [sum(p for p, found in expected if not any(s <= i < e for s, e, _ in found)) for i in range(size)]
    assert marginals.outside == pytest.approx(free, abs=1e-9)
    assert all(marginals.outside[i] == 0.0 for start, end, _ in existing for i in range(start, end))
    assert decoding.entropy == pytest.approx(-sum(p * np.log(p) for p in best if p), abs=1e-9)
    for entity in (*decoding.entities, *readings[0].entities, *marginals.entities):
        assert entity.offsets not in existing or entity.probability == 1.0
    if len(rules.units) == len(decoding.doc):
        for entities in found[:4]:
            check_likelihood(decoding, levels, entities, offsets, existing)


def check_likelihood(
    decoding: Decoding,
    levels: list[list[tuple[float, Any]]],
    entities: frozenset[tuple[int, int, str]],
    offsets: Callable[[Entity], tuple[int, int, str]],
    existing: set[tuple[int, int, str]],
) -> None:
    """Compare the likelihood of a gold annotation with a sum over the label sequences of each depth."""
    gold, spans = decoding.doc.copy(), sorted(entities)
    numbers = nesting_levels(spans)
    if max(numbers, default=0) >= len(levels):
        return
    by_level = [{span for span, number in zip(spans, numbers, strict=True) if number == n} for n in range(len(levels))]
    # Of two labels for the same span, the label of the existing entity comes first.
    for level in by_level[1:]:
        for span in existing & level:
            for other in [other for other in by_level[0] if other[:2] == span[:2]]:
                by_level[0].symmetric_difference_update({span, other})
                level.symmetric_difference_update({span, other})
    gold.set_ents([gold.char_span(*span[:2], label=span[2]) for span in by_level[0]], default="outside")
    gold.spans["sc"] = [gold.char_span(*span[:2], label=span[2]) for span in spans]
    expected = 1.0
    for expected_spans, sequences in zip(by_level, levels, strict=True):
        scores = np.array([score for score, _ in sequences])
        probabilities = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        agrees = [set(map(offsets, found)) - existing == expected_spans - existing for _, found in sequences]
        expected *= probabilities[agrees].sum()
    assert decoding.likelihood(gold) == pytest.approx(expected, abs=1e-9)
