"""What pipelines believe of texts: entities and emptiness, each with a probability, whatever their tokens are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc

from ...errors import RemedyError
from ...pipeline.entities import Place, place_of
from ...pipeline.finding import entity_finders, recognisers
from ..vectors.raw_text import make_docs

FloatArray = NDArray[np.float64]
LEAST = 0.05
"""Entities that a teacher finds less probable count as not found."""


@dataclass(frozen=True)
class Belief:
    """What teachers believe of a text.

    entities: How probable they find each entity.
    outside: How probable they find it that a character lies in no entity. *Shape* [n_characters]
    """

    doc: Doc
    entities: dict[Place, float]
    outside: FloatArray


def beliefs(teachers: Sequence[Language], texts: Sequence[str]) -> Iterator[Belief]:
    """Let teachers vote on a batch of texts: the means of what they believe, on the first one's Docs."""
    for votes in zip(*(_vote(teacher, texts) for teacher in teachers), strict=True):
        entities: dict[Place, float] = defaultdict(float)
        for vote in votes:
            for place, probability in vote.entities.items():
                entities[place] += probability / len(votes)
        yield Belief(votes[0].doc, dict(entities), np.mean([vote.outside for vote in votes], axis=0))


def lacking(teachers: Mapping[str, Language]) -> dict[str, list[str]]:
    """The labels that a teacher lacks and others have, by the teacher's name: it votes against all entities of these.

    Teachers with a component that finds entities and does not tell their labels are left out.
    """
    known = {name: labels for name, teacher in teachers.items() if (labels := _labels(teacher)) is not None}
    every = set().union(*known.values())
    return {name: sorted(every - labels) for name, labels in known.items() if every - labels}


def _labels(teacher: Language) -> set[str] | None:
    finding, told = entity_finders(teacher), teacher.pipe_labels
    if not finding or any(name not in told for name in finding):
        return None
    return {label for name in finding for label in told[name]}


def check_teachers(teachers: Mapping[str, Language]) -> None:
    """Refuse teachers that would find nothing anywhere."""
    for name, teacher in teachers.items():
        if _labels(teacher) == set():
            raise RemedyError(f"{name}: no component has a label of entities", "Name a trained pipeline.")


def _vote(teacher: Language, texts: Sequence[str]) -> list[Belief]:
    found = recognisers(teacher)
    if not found:
        return [_certain(doc) for doc in teacher.pipe(make_docs(teacher, texts))]
    name, pipe = found.popitem()
    at = teacher.pipe_names.index(name)
    with teacher.select_pipes(disable=teacher.pipe_names[at:]):
        docs = list(teacher.pipe(make_docs(teacher, texts)))
    believed = [
        Belief(doc, {(e.start, e.end, e.label): e.probability or 0.0 for e in each.entities}, each.outside)
        for doc, each in zip(docs, pipe.marginals(docs, LEAST), strict=True)
    ]
    if len(entity_finders(teacher)) > 1 or teacher.pipe_names[at + 1 :]:
        for belief in believed:
            _correct(belief, [component for _, component in teacher.pipeline[at:]])
    return believed


def _correct(belief: Belief, components: Sequence[Callable[[Doc], Doc]]) -> None:
    """Let entities of components before and behind the first of these, which gives the probabilities, be certain, and
    those that are taken away again not be found."""
    doc = belief.doc
    before = _places(doc)
    found = _places(components[0](doc))
    for component in components[1:]:
        doc = component(doc)
    final = _places(doc)
    for place in found - final:
        belief.entities.pop(place, None)
    for start, end, label in (before & final) | (final - found):
        belief.entities[start, end, label] = 1.0
        belief.outside[start:end] = 0.0


def _places(doc: Doc) -> set[Place]:
    return set(map(place_of, doc.ents))


def _certain(doc: Doc) -> Belief:
    """Of a pipeline that gives no probabilities, such as spaCy's `ner`, rules or an LLM, all is certain."""
    outside = np.ones(len(doc.text))
    for ent in doc.ents:
        outside[ent.start_char : ent.end_char] = 0.0
    return Belief(doc, dict.fromkeys(map(place_of, doc.ents), 1.0), outside)
