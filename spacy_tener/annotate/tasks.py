"""Tasks that run a pipeline on a batch of texts, with one result for each text. `annotate` and `serve` call them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from spacy.language import Language

from ..pipeline.decoding import LabelSequence
from ..pipeline.entities import FoundEntity
from ..pipeline.finding import InputText, PipelineNER, crf_pipes, found_entities, make_doc, probability_config
from ..pipeline.windows import ItemT, batch_by_size

# A function that returns a result for each text.
TextFunction = Callable[[Sequence[InputText]], Sequence[Any]]

# Maximum number of characters in a batch. A longer text is a batch of its own.
BATCH_CHARACTERS = 4_096


def sequence_score(log_probability: float, characters: int) -> float:
    """Return the score of an annotation task: p ** (1 / sqrt(characters)), with the probability p of its best label
    sequence.

    The exponent compensates for the length, so that tasks which are sorted by score are not sorted by length.
    """
    return math.exp(log_probability / math.sqrt(max(1, characters)))


def batch_by_length(items: Iterable[ItemT], length: Callable[[Any], int] = len) -> Iterator[list[ItemT]]:
    """Yield batches of items with similar lengths, the shortest first, so that short texts do not wait for long
    ones."""
    return batch_by_size(sorted(items, key=length), BATCH_CHARACTERS, length)


def answer_each(task: TextFunction, texts: Sequence[InputText]) -> list[Any]:
    """Run a task on texts. Return the result or the exception for each text.

    If a batch fails, it is split in half and both halves are run again, until the texts that cause the error are found.
    """
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
    """Return a task whose result for a text is a list of `FoundEntity`.

    probability (bool): Include probabilities, even if the components have no `spans_key`.
    """
    return partial(_entities, nlp, probability)


def k_best_task(nlp: Language, k: int) -> TextFunction:
    """Return a task that finds the entities and the k best label sequences of each text.

    The label sequences are those of the first `tener_ner`. If the pipeline has none, the list is empty.
    """
    return partial(_k_best, nlp, k)


def _entities(nlp: Language, probability: bool, texts: Sequence[InputText]) -> list[list[FoundEntity]]:
    # A memory zone drops the strings that the texts add to the vocabulary.
    with nlp.memory_zone():
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
