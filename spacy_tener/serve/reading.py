"""What a pipeline finds in texts, as the service's answers have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import NamedTuple

from spacy.language import Language
from spacy.tokens import Doc

from ..explain import Explanation, explain
from ..pipeline.entities import CHAR_OFFSETS, SCORES
from ..pipeline.settings import NERSettings
from ..pipeline.tener_ner import TenerNER
from .worker import Task

_SPANS_KEY = "tener_serve"


class Found(NamedTuple):
    """An entity, by characters of its text."""

    start: int
    end: int
    label: str
    probability: float | None


def entity_task(nlp: Language) -> Task:
    """Finds the entities of texts, with probabilities, which the components are told to write from now on."""
    recognisers = [pipe for _, pipe in nlp.pipeline if isinstance(pipe, TenerNER)]
    for pipe in recognisers:
        pipe.cfg["spans_key"] = pipe.cfg.get("spans_key") or _SPANS_KEY
    return partial(_entities, nlp, [pipe.settings for pipe in recognisers])


def _entities(nlp: Language, settings: Sequence[NERSettings], texts: Sequence[str]) -> list[list[Found]]:
    # What the texts bring into the vocabulary is forgotten behind the batch.
    with nlp.memory_zone():
        return [sorted(_found(doc, settings), key=lambda one: (one.start, one.end)) for doc in nlp.pipe(texts)]


def _found(doc: Doc, settings: Sequence[NERSettings]) -> Iterator[Found]:
    groups = [doc.spans[each.spans_key] for each in settings if each.spans_key in doc.spans]
    known = {
        (span.start, span.end, span.label): float(score)
        for group in reversed(groups)
        for span, score in zip(group, group.attrs[SCORES], strict=True)
    }
    exact = {
        (span.start, span.end, span.label): offsets
        for each in settings
        if each.view == "characters" and each.chars_key in doc.spans
        for span, offsets in zip(doc.spans[each.chars_key], doc.spans[each.chars_key].attrs[CHAR_OFFSETS], strict=True)
    }
    for ent in doc.ents:
        place = (ent.start, ent.end, ent.label)
        start, end = exact.get(place, (ent.start_char, ent.end_char))
        yield Found(start, end, ent.label_, known.get(place))


def explanation_tasks(nlp: Language) -> dict[str, Task]:
    """Explain texts, by the form that is wanted; nothing where the pipeline cannot be explained."""
    if not any(isinstance(pipe, TenerNER) for _, pipe in nlp.pipeline):
        return {}
    return {
        "json": partial(_explained, nlp, Explanation.to_json),
        "html": partial(_explained, nlp, Explanation.to_html),
    }


def _explained(nlp: Language, write: Callable[[Explanation], str], texts: Sequence[str]) -> list[str]:
    with nlp.memory_zone():
        return [write(explain(nlp, text)) for text in texts]


def utf16_offsets(text: str) -> list[int] | None:
    """Where each character begins in UTF-16, and where the last one ends; None where characters have one unit each."""
    if text.isascii() or max(text) <= "\uffff":
        return None
    return list(accumulate((1 + (char > "\uffff") for char in text), initial=0))


def labels(nlp: Language) -> list[str]:
    """The labels that entities of a pipeline can have, as its components say."""
    named = (nlp.pipe_labels[name] for name in nlp.pipe_names if "doc.ents" in nlp.get_pipe_meta(name).assigns)
    return sorted({label for names in named for label in names})
