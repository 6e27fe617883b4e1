"""What a pipeline finds in texts, as the service's answers have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from spacy.language import Language
from spacy.tokens import Doc

from ..pipeline.tener_ner import TenerNER
from .worker import Task


class Found(NamedTuple):
    """An entity, by characters of its text."""

    start: int
    end: int
    label: str
    probability: float | None


def entity_task(nlp: Language) -> Task:
    """Finds the entities of texts. Strings that the texts bring are forgotten behind each batch."""
    return partial(_entities, nlp, {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, TenerNER)})


def _entities(nlp: Language, recognisers: Mapping[str, TenerNER], texts: Sequence[str]) -> list[list[Found]]:
    with nlp.memory_zone():
        docs = list(nlp.pipe(texts, disable=list(recognisers)))
        found = [_of_others(doc) for doc in docs]
        for recogniser in recognisers.values():
            for entities, scored in zip(found, recogniser.scored(docs), strict=True):
                entities += [Found(each.start, each.end, each.label, each.probability) for each in scored]
        return [sorted(entities) for entities in found]


def _of_others(doc: Doc) -> list[Found]:
    return [Found(ent.start_char, ent.end_char, ent.label_, None) for ent in doc.ents]


def utf16_offsets(text: str) -> list[int] | None:
    """Where each character begins in UTF-16, and where the last one ends; None where characters have one unit each."""
    if text.isascii() or max(text) <= "\uffff":
        return None
    return list(accumulate((1 + (char > "\uffff") for char in text), initial=0))


def labels(nlp: Language) -> list[str]:
    """The labels that entities of a pipeline can have, as its components say."""
    named = (nlp.pipe_labels[name] for name in nlp.pipe_names if "doc.ents" in nlp.get_pipe_meta(name).assigns)
    return sorted({label for names in named for label in names})
