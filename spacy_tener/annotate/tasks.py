"""Functions that run a pipeline on batches of texts and return one result per text.

The `Annotator` and the server use this module.
"""

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

# Type of a function that takes a batch of texts and returns one result per text.
TextFunction = Callable[[Sequence[InputText]], Sequence[Any]]

# Maximum number of characters in a batch. A longer text forms its own batch.
BATCH_CHARACTERS = 4_096


def sequence_score(log_probability: float, characters: int) -> float:
    """Return a text's prediction score for annotation tools: `p ** (1 / sqrt(characters))`.

    `p` is the probability of the best label sequence, which decreases with the text length. The exponent compensates
    for this, so that texts sorted by score are not simply sorted by length.

    log_probability (float): The logarithm of `p`.
    characters (int): Number of characters in the text.
    """
    return math.exp(log_probability / math.sqrt(max(1, characters)))


def batch_by_length(items: Iterable[ItemT], length: Callable[[Any], int] = len) -> Iterator[list[ItemT]]:
    """Sort items by length, and divide the items into batches. The batches with the shortest items come first.

    length (Callable[[Any], int]): Function that returns the number of characters in an item.
    """
    return batch_by_size(sorted(items, key=length), BATCH_CHARACTERS, length)


def answer_each(task: TextFunction, texts: Sequence[InputText]) -> list[Any]:
    """Run a function on a batch of texts. Return one result per text, or the exception if the text caused an error.

    If the function fails, the batch is split in half, and the function is called for each half. This is repeated until
    the texts that cause the error are found.
    """
    if not texts:
        return []
    try:
        answers = list(task(texts))
        if len(answers) != len(texts):
            raise ValueError(
                f"the pipeline returned {len(answers)} results for {len(texts)} texts; check for a component that "
                "adds or removes Docs"
            )
        return answers
    except Exception as error:
        if len(texts) == 1:
            return [error]
        middle = len(texts) // 2
        return answer_each(task, texts[:middle]) + answer_each(task, texts[middle:])


def entity_task(nlp: Language, *, probability: bool = True) -> TextFunction:
    """Return a function that predicts the entities in each text.

    probability (bool): Compute a probability for each entity, whatever the components' `spans_key` is.
    """
    return partial(_entities, nlp, probability)


def k_best_task(nlp: Language, k: int) -> TextFunction:
    """Return a function that predicts the entities and the k best label sequences for each text.

    The label sequences are predicted by the first `tener_ner` component. Without such a component, the list of label
    sequences is empty.
    """
    return partial(_k_best, nlp, k)


def _entities(nlp: Language, probability: bool, texts: Sequence[InputText]) -> list[list[FoundEntity]]:
    # The memory zone deletes the strings that the texts add to the vocabulary. Otherwise, the vocabulary would grow
    # during a long job.
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
