"""The entities that a pipeline finds in texts and Docs, with their exact offsets and probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from spacy.language import Language

from .decoding import LabelSequence
from .entities import FoundEntity, read_entities
from .finding import InputText, PipelineNER, ask_probabilities, crf_pipes, make_doc, span_finders
from .windows import ItemT, batch_by_size

TextFunction = Callable[[Sequence[InputText]], Sequence[Any]]
"""A function that returns one answer for each text."""

BATCH_CHARACTERS = 4_096
"""Most characters of a batch; a longer text is a batch of its own."""


def found_entities(nlp: Language, docs: Iterable[Doc], *, with_spancat: bool = True) -> list[list[FoundEntity]]:
    """Return the entities of Docs that a pipeline has processed, nested entities included.

    with_spancat (bool): Include the spans of each `spancat`, which may overlap.
    """
    keys = [pipe.key for pipe in span_finders(nlp).values()] if with_spancat else []
    return [[FoundEntity(*entity[:4]) for entity in read_entities(doc, keys)] for doc in docs]


def sequence_score(log_probability: float, characters: int) -> float:
    """Return the score of an annotation task: p ** (1 / sqrt(characters)), with the probability p of its best label
    sequence.

    The exponent compensates for the length, so that tasks which are sorted by score are not sorted by length.
    """
    return math.exp(log_probability / math.sqrt(max(1, characters)))


def batch_by_length(items: Iterable[ItemT], length: Callable[[Any], int] = len) -> Iterator[list[ItemT]]:
    """Yield batches of items of similar length, the shortest first, so that no short text waits for a long one."""
    return batch_by_size(sorted(items, key=length), BATCH_CHARACTERS, length)


def answer_each(task: TextFunction, texts: Sequence[InputText]) -> list[Any]:
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


def k_best_task(nlp: Language, k: int) -> TextFunction:
    """Return a task that finds the entities and the k best label sequences of each text.

    The label sequences are those of the first `tener_ner`. If the pipeline has none, the list is empty.
    """
    return partial(_k_best, nlp, k)


def _entities(nlp: Language, probability: bool, texts: Sequence[InputText]) -> list[list[FoundEntity]]:
    with nlp.memory_zone():  # drops the strings that the texts add to the vocabulary
        docs = [make_doc(nlp, text) for text in texts]
        return found_entities(nlp, nlp.pipe(docs, component_cfg=probability_config(nlp) if probability else {}))


def _k_best(nlp: Language, k: int, texts: Sequence[InputText]) -> list[tuple[list[FoundEntity], list[LabelSequence]]]:
    if not crf_pipes(nlp):
        return [(entities, []) for entities in _entities(nlp, True, texts)]
    with nlp.memory_zone():
        pipeline = PipelineNER.of(nlp)
        decodings = list(pipeline.ner.decode(pipeline.prepare(texts)))
        sequences = [decoding.k_best(k) for decoding in decodings]
        found = found_entities(nlp, pipeline.complete(decodings))
        return list(zip(found, sequences, strict=True))
