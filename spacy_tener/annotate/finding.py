"""Entities and readings that a pipeline finds in texts, the same for the service and for archives."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from spacy.language import Language
from spacy.tokens import Doc

from ..pipeline.confidence import ConfidentPipe, Parse
from ..pipeline.entities import CHAR_OFFSETS, SCORES, FoundEntity, Place, place_of, read_places
from ..pipeline.finding import entity_finders, find_recogniser, recognisers
from ..pipeline.settings import NERSettings
from .batches import Task

_SPANS_KEY = "tener_found"


def entity_task(nlp: Language, *, probability: bool = True) -> Task:
    """Return what finds the entities of texts: a list of `FoundEntity` for each.

    probability: Let the components write probabilities while they read these texts.
    """
    return partial(_entities, nlp, probability)


def reading_task(nlp: Language, k: int, *, probability: bool = True) -> Task:
    """Return what finds the entities of texts, and their k best readings by the first tener_ner: a pair for each."""
    return partial(_k_best, nlp, find_recogniser(nlp), k, probability)


def labels(nlp: Language) -> list[str]:
    """Return the labels that entities of a pipeline can have, as its components say."""
    named = (nlp.pipe_labels.get(name, ()) for name in entity_finders(nlp))
    return sorted({label for names in named for label in names})


@contextmanager
def _settings(nlp: Language, probability: bool) -> Iterator[list[NERSettings]]:
    """Yield the settings of the components, by which they write probabilities until the end, if asked to."""
    pipes = recognisers(nlp).values()
    keys = [pipe.cfg.get("spans_key") for pipe in pipes]
    try:
        for pipe, key in zip(pipes, keys, strict=True):
            pipe.cfg["spans_key"] = key or (_SPANS_KEY if probability else None)
        yield [pipe.settings for pipe in pipes]
    finally:
        for pipe, key in zip(pipes, keys, strict=True):
            pipe.cfg["spans_key"] = key


def _entities(nlp: Language, probability: bool, texts: Sequence[str]) -> list[list[FoundEntity]]:
    # Strings that the texts bring into the vocabulary are forgotten after the batch.
    with nlp.memory_zone(), _settings(nlp, probability) as settings:
        return [_sorted(doc, settings) for doc in nlp.pipe(texts)]


def _k_best(
    nlp: Language, pipe: ConfidentPipe, k: int, probability: bool, texts: Sequence[str]
) -> list[tuple[list[FoundEntity], list[Parse]]]:
    with nlp.memory_zone(), _settings(nlp, probability) as settings:
        # Before later components run, which may merge tokens. In one batch: a shared component keeps only the last one.
        names = nlp.pipe_names
        before, others = names[: names.index(pipe.name)], names[names.index(pipe.name) :]
        docs = list(nlp.pipe(texts, batch_size=len(texts), disable=others))
        parses = pipe.k_best(docs, k)
        docs = list(nlp.pipe(docs, batch_size=len(texts), disable=before))
        return [(_sorted(doc, settings), found) for doc, found in zip(docs, parses, strict=True)]


def _sorted(doc: Doc, settings: Sequence[NERSettings]) -> list[FoundEntity]:
    return sorted(_found(doc, settings), key=lambda one: (one.start, one.end))


def _found(doc: Doc, settings: Sequence[NERSettings]) -> Iterator[FoundEntity]:
    groups = [doc.spans[each.spans_key] for each in settings if each.spans_key in doc.spans]
    known = {place: float(score) for group in reversed(groups) for place, score in read_places(group, SCORES)}
    exact = {
        place: offsets
        for each in settings
        if each.view == "characters" and each.chars_key in doc.spans
        for place, offsets in sorted(read_places(doc.spans[each.chars_key], CHAR_OFFSETS), key=_overlap_priority)
    }
    for ent in doc.ents:
        place = place_of(ent)
        start, end = exact.get(place, place[:2])
        yield FoundEntity(start, end, ent.label_, known.get(place))


def _overlap_priority(row: tuple[Place, Sequence[int]]) -> tuple[int, int]:
    """Return a sort key by which, of entities in the same tokens, the one in `doc.ents` is last: the longest, or the
    first of the longest."""
    _, (start, end) = row
    return end - start, -start
