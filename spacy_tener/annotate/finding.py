"""Entities and k best readings of texts, in batches of similar length, for `Annotator` and for the service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from spacy.language import Language

from ..pipeline.decoding import Reading
from ..pipeline.doc_entities import found_entities
from ..pipeline.entities import FoundEntity
from ..pipeline.finding import PipelineNER, ask_probabilities, crf_pipes
from ..pipeline.windows import SizedT, batch_by_size

TextFunction = Callable[[Sequence[str]], Sequence[Any]]
"""A function that returns one answer for each text."""

TOGETHER = 4_096
"""Most characters of a batch; a longer text is a batch of its own."""


def batch_by_length(items: Iterable[SizedT]) -> Iterator[list[SizedT]]:
    """Yield batches of items of similar length, the shortest first, so that no short text waits for a long one."""
    return batch_by_size(sorted(items, key=len), TOGETHER)


def answer_each(task: TextFunction, texts: Sequence[str]) -> list[Any]:
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


def entity_task(nlp: Language, *, probability: bool = True) -> TextFunction:
    """Return a task that finds entities: a list of `FoundEntity` for each text.

    probability (bool): Let components without a `spans_key` write probabilities too, for these texts only.
    """
    return partial(_entities, nlp, probability)


def reading_task(nlp: Language, k: int, *, probability: bool = True) -> TextFunction:
    """Return a task that finds a pair for each text: its entities, and its k best readings by the first tener_ner, or
    none without one."""
    return partial(_k_best, nlp, k, probability)


def _entities(nlp: Language, probability: bool, texts: Sequence[str]) -> list[list[FoundEntity]]:
    with nlp.memory_zone():  # drops the strings that the texts add to the vocabulary
        docs = map(nlp.tokenizer, texts)  # not nlp.make_doc, which refuses texts of more than nlp.max_length characters
        return found_entities(nlp, nlp.pipe(docs, component_cfg=ask_probabilities(nlp, probability)))


def _k_best(
    nlp: Language, k: int, probability: bool, texts: Sequence[str]
) -> list[tuple[list[FoundEntity], list[Reading]]]:
    if not crf_pipes(nlp):
        return [(entities, []) for entities in _entities(nlp, probability, texts)]
    with nlp.memory_zone():
        pipeline = PipelineNER.of(nlp)
        decodings = list(pipeline.ner.decode(pipeline.prepare(texts)))
        readings = [decoding.with_preset.k_best(k) for decoding in decodings]
        found = found_entities(nlp, pipeline.complete(decodings, probability=probability))
        return list(zip(found, readings, strict=True))
