"""The entities that a pipeline finds in texts and Docs, with their exact offsets and probabilities."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc

from .decoding import Reading
from .entities import SCORES, EntityOffsets, FoundEntity, offsets_of, read_exact, read_offsets, read_scores
from .finding import SCORES_KEY, InputText, PipelineNER, ask_probabilities, crf_pipes, make_doc, overlap_groups
from .settings import NERSettings
from .windows import ItemT, batch_by_size

TextFunction = Callable[[Sequence[InputText]], Sequence[Any]]
"""A function that returns one answer for each text."""

BATCH_CHARACTERS = 4_096
"""Most characters of a batch; a longer text is a batch of its own."""


def found_entities(nlp: Language, docs: Iterable[Doc], *, with_spancat: bool = True) -> list[list[FoundEntity]]:
    """Return the entities in Docs that a pipeline has processed, with those within others.

    with_spancat (bool): Include those of a `spancat`, which may overlap.
    """
    pipes = crf_pipes(nlp)
    settings = [replace(pipe.settings, spans_key=pipe.settings.spans_key or SCORES_KEY) for pipe in pipes.values()]
    keys = {key for name, key in overlap_groups(nlp).items() if with_spancat or name in pipes}
    return [
        sorted(entities_of_doc(doc, settings, keys), key=lambda entity: (entity.start, entity.end, entity.label))
        for doc in docs
    ]


def entities_of_doc(doc: Doc, components: Sequence[NERSettings], keys: Iterable[str] = ()) -> Iterator[FoundEntity]:
    """Yield the entities of `doc.ents`, and others in the groups of `doc.spans` with these keys."""
    scores = {
        entity: float(score)
        for settings in reversed(components)
        for entity, score in read_offsets(doc, settings.spans_key, SCORES)
    }
    exact: dict[EntityOffsets, dict[EntityOffsets, FoundEntity]] = defaultdict(dict)
    for settings in components:
        if settings.view == "characters":
            for aligned, entity in read_exact(doc, settings.chars_key):
                exact[aligned].setdefault(entity.offsets, entity)
    ents = dict.fromkeys(map(offsets_of, doc.ents))
    spans = {span: score for key in keys for span, score in read_scores(doc, key)}
    for span in dict.fromkeys([*ents, *spans]):
        in_tokens = sorted(exact[span].values(), key=_overlap_priority) or [FoundEntity(*span, None)]
        yield replace(in_tokens[-1], probability=scores.get(span) if span in ents else spans[span])
        yield from in_tokens[:-1]  # within it, or beside it in one word


def _overlap_priority(entity: FoundEntity) -> tuple[int, int]:
    """Return a sort key for entities in the same tokens: the one in `doc.ents` comes last, which is the longest, or the
    first of the longest."""
    return entity.end - entity.start, -entity.start


def reading_score(log_probability: float, characters: int) -> float:
    """Return the score of a task of annotation: the probability of its best reading, to the power of
    1 / sqrt(characters), so that tasks sorted by score are not sorted by length."""
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


def reading_task(nlp: Language, k: int) -> TextFunction:
    """Return a task that finds a pair for each text: its entities, and its k best readings by the first tener_ner, or
    none without one."""
    return partial(_k_best, nlp, k)


def _entities(nlp: Language, probability: bool, texts: Sequence[InputText]) -> list[list[FoundEntity]]:
    with nlp.memory_zone():  # drops the strings that the texts add to the vocabulary
        docs = [make_doc(nlp, text) for text in texts]
        return found_entities(nlp, nlp.pipe(docs, component_cfg=ask_probabilities(nlp) if probability else {}))


def _k_best(nlp: Language, k: int, texts: Sequence[InputText]) -> list[tuple[list[FoundEntity], list[Reading]]]:
    if not crf_pipes(nlp):
        return [(entities, []) for entities in _entities(nlp, True, texts)]
    with nlp.memory_zone():
        pipeline = PipelineNER.of(nlp)
        decodings = list(pipeline.ner.decode(pipeline.prepare(texts)))
        readings = [decoding.k_best(k) for decoding in decodings]
        found = found_entities(nlp, pipeline.complete(decodings))
        return list(zip(found, readings, strict=True))
