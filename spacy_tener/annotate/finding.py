"""Entities and k best readings of texts, in batches of similar length, for `Annotator` and for the service."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, SpanGroup

from ..pipeline.decoding import Reading
from ..pipeline.entities import CHAR_OFFSETS, SCORES, EntityOffsets, FoundEntity, offsets_of, read_offsets
from ..pipeline.finding import components_before, crf_pipes, span_finders
from ..pipeline.settings import NERSettings
from ..pipeline.tener_ner import TenerNER
from ..pipeline.windows import SizedT, batch_by_size

Task = Callable[[Sequence[str]], Sequence[Any]]
"""A function that returns one answer for each text."""

TOGETHER = 4_096
"""Most characters of a batch; a longer text is a batch of its own."""
_SPANS_KEY = "tener_found"


def batch_by_length(items: Iterable[SizedT]) -> Iterator[list[SizedT]]:
    """Yield batches of items of similar length, the shortest first, so that no short text waits for a long one."""
    return batch_by_size(sorted(items, key=len), TOGETHER)


def answer_each(task: Task, texts: Sequence[str]) -> list[Any]:
    """Return the answer for each text, or the exception that it raises. A batch that fails is halved and retried."""
    if not texts:
        return []
    try:
        answers = list(task(texts))
        if len(answers) != len(texts):
            raise ValueError(f"{len(answers)} answers for {len(texts)} texts")
        return answers
    except Exception as error:
        if len(texts) == 1:
            return [error]
        middle = len(texts) // 2
        return answer_each(task, texts[:middle]) + answer_each(task, texts[middle:])


def entity_task(nlp: Language, *, probability: bool = True) -> Task:
    """Return a task that finds entities: a list of `FoundEntity` for each text.

    probability: Let components without a `spans_key` write probabilities too, for these texts only.
    """
    return partial(_entities, nlp, probability)


def reading_task(nlp: Language, k: int, *, probability: bool = True) -> Task:
    """Return a task that finds a pair for each text: its entities, and its k best readings by the first tener_ner, or
    none without one."""
    return partial(_k_best, nlp, next(iter(crf_pipes(nlp).values()), None), k, probability)


def reading_score(log_probability: float, characters: int) -> float:
    """Return the score of a task of annotation: the probability of its best reading, to the power of
    1 / sqrt(characters), so that tasks sorted by score are not sorted by length."""
    return math.exp(log_probability / math.sqrt(max(1, characters)))


def _entities(nlp: Language, probability: bool, texts: Sequence[str]) -> list[list[FoundEntity]]:
    with nlp.memory_zone():  # drops the strings that the texts add to the vocabulary
        return found_in(nlp, nlp.pipe(texts, component_cfg=probabilities_asked(nlp, probability)))


def _k_best(
    nlp: Language, pipe: TenerNER | None, k: int, probability: bool, texts: Sequence[str]
) -> list[tuple[list[FoundEntity], list[Reading]]]:
    if pipe is None:
        return [(entities, []) for entities in _entities(nlp, probability, texts)]
    with nlp.memory_zone():
        before, asked = components_before(nlp, pipe), probabilities_asked(nlp, probability)
        later = nlp.pipe_names[len(before) :]
        docs = list(nlp.pipe(texts, batch_size=len(texts), disable=later, component_cfg=asked))
        decodings = list(pipe.decode(docs))
        # Before later components, which may merge tokens.
        readings = [decoding.with_preset.k_best(k) for decoding in decodings]
        pipe.annotate(decodings, **asked.get(later[0], {}))
        docs = list(nlp.pipe(docs, batch_size=len(texts), disable=[*before, later[0]], component_cfg=asked))
        return list(zip(found_in(nlp, docs), readings, strict=True))


def probabilities_asked(nlp: Language, probability: bool = True) -> dict[str, dict[str, Any]]:
    """Return the arguments of components that write probabilities: those without a `spans_key` get one."""
    return {name: {"spans_key": _SPANS_KEY} for name in crf_pipes(nlp)} if probability else {}


def found_in(nlp: Language, docs: Iterable[Doc], *, apart: bool = False) -> list[list[FoundEntity]]:
    """Return the entities in Docs that a pipeline has read. apart: Without those of a `spancat`, which may overlap."""
    settings = [pipe.settings for pipe in crf_pipes(nlp).values()]
    settings = [replace(each, spans_key=each.spans_key or _SPANS_KEY) for each in settings]
    keys = set() if apart else {pipe.key for pipe in span_finders(nlp).values()}
    return [sorted(_found(doc, settings, keys), key=lambda one: (one.start, one.end, one.label)) for doc in docs]


def _found(doc: Doc, settings: Sequence[NERSettings], keys: Iterable[str] = ()) -> Iterator[FoundEntity]:
    """Yield the entities of `doc.ents`, and others in the groups of `doc.spans` with these keys."""
    groups = [doc.spans[each.spans_key] for each in settings if each.spans_key in doc.spans]
    known = {place: float(score) for group in reversed(groups) for place, score in read_offsets(group, SCORES)}
    exact = {
        place: offsets
        for each in settings
        if each.view == "characters" and each.chars_key in doc.spans
        for place, offsets in sorted(read_offsets(doc.spans[each.chars_key], CHAR_OFFSETS), key=_overlap_priority)
    }
    for ent in doc.ents:
        place = offsets_of(ent)
        start, end = exact.get(place, place[:2])
        yield FoundEntity(start, end, ent.label_, known.get(place))
    others = {place: p for key in keys if key in doc.spans for place, p in _scored(doc.spans[key])}
    for place in others.keys() - set(map(offsets_of, doc.ents)):
        yield FoundEntity(*place, others[place])


def _scored(group: SpanGroup) -> Iterator[tuple[EntityOffsets, float | None]]:
    """Yield the places and probabilities of a `spancat`'s spans. It writes no scores in a text shorter than its spans,
    and a later component that writes to its group drops them."""
    scores = group.attrs.get(SCORES, ())
    known = map(float, scores) if len(scores) == len(group) else itertools.repeat(None)
    yield from zip(map(offsets_of, group), known, strict=False)


def _overlap_priority(row: tuple[EntityOffsets, Sequence[int]]) -> tuple[int, int]:
    """Return a sort key for entities in the same tokens: the one in `doc.ents` comes last, which is the longest, or the
    first of the longest."""
    _, (start, end) = row
    return end - start, -start
