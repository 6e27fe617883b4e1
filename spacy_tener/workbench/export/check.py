"""What a file finds in texts, beside what its pipeline finds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.language import Language

from ...features.characters import code_points, lengths_of
from ...onnx.encoder import open_session
from ...pipeline.entities import EntityOffsets, offsets_of
from ...pipeline.finding import PipelineNER
from ...pipeline.lac import Lac
from ...pipeline.tokenizer import make_char_tokenizer
from ...pipeline.units import SENTENCE_ENDS
from ...sequences import starts
from ...tagging import TagLayout

_COMPARED_AT_ONCE = 128
_SPECIAL = "\n\r\t  \u3000\u2028\0\u0301\u200b😀𠀀" + SENTENCE_ENDS
_SAMPLE_SIZES = (1, 2, 5, 20, 60, 190, 200, 201, 400)


@dataclass(frozen=True)
class Comparison:
    """Entities of texts that a file and its pipeline find.

    n_same (int): The number of entities that both find.
    differing (list[str]): Texts in which they find others.
    difference (float): The largest difference of an entity's probability.
    """

    n_texts: int
    n_characters: int
    n_same: int
    differing: list[str]
    difference: float


def read_entities(session: Any, texts: Sequence[str]) -> list[dict[EntityOffsets, float]]:
    """Return the probabilities of the entities that a file finds in each text; 0 without. session: ONNX Runtime's."""
    codes, lengths = code_points("".join(texts)), lengths_of(texts)
    inputs = {"codes": codes.astype(np.int32), "lengths": lengths.astype(np.int32)}
    tags, probabilities, [about] = session.run(["tags", "probabilities", "about"], inputs)
    thresholds: dict[str, float] = json.loads(about)["thresholds"]
    labels = list(thresholds)
    found: list[dict[EntityOffsets, float]] = [{} for _ in texts]
    begins = starts(lengths)
    for path, path_probabilities in zip(tags, probabilities, strict=True):
        firsts, ends, label_indices = TagLayout(len(labels)).decode(path)
        owners = np.searchsorted(begins, firsts, side="right") - 1
        offsets = begins[owners]
        columns = owners, firsts - offsets, ends - offsets, label_indices, path_probabilities[ends - 1]
        for owner, start, end, i, probability in zip(*map(np.ndarray.tolist, columns), strict=True):
            if probability >= thresholds[labels[i]]:
                found[owner][start, end, labels[i]] = probability
    return found


def sample_texts(nlp: Language, count: int = 100) -> list[str]:
    """Return texts of the characters that a pipeline has seen, and of special ones, around the edges of windows."""
    characters = [text for text in nlp.vocab.strings if len(text) == 1]
    generator = np.random.default_rng(0)
    signs = np.array([*(characters or "a") * 3, *_SPECIAL])
    lengths = generator.choice(_SAMPLE_SIZES, count)
    return ["", *("".join(generator.choice(signs, length)) for length in lengths)]


def compare(nlp: Language, component: str, graph: bytes, texts: Sequence[str]) -> Comparison:
    """Compare an exported file with a component of its pipeline."""
    session = open_session(graph, "The exported file")
    n_same, differing, difference = 0, list[str](), 0.0
    for begin in range(0, len(texts), _COMPARED_AT_ONCE):
        batch = texts[begin : begin + _COMPARED_AT_ONCE]
        sides = _find(nlp, component, batch), read_entities(session, batch)
        for text, expected, found in zip(batch, *sides, strict=True):
            same = expected.keys() & found.keys()
            n_same += len(same)
            if len(same) < max(len(expected), len(found)):
                differing.append(text)
            difference = max([difference, *(abs(expected[span] - found[span]) for span in same)])
    return Comparison(len(texts), sum(map(len, texts)), n_same, differing, difference)


def _find(nlp: Language, component: str, texts: Sequence[str]) -> Iterator[dict[EntityOffsets, float]]:
    """Yield what `read_entities` returns, as a component finds it."""
    pipe = nlp.get_pipe(component)
    if isinstance(pipe, Lac):
        docs = pipe.pipe(map(make_char_tokenizer()(nlp), texts))
        yield from (dict.fromkeys(map(offsets_of, doc.ents), 0.0) for doc in docs)
        return
    pipeline = PipelineNER.of(nlp, component)
    ner = pipeline.ner
    thresholds = dict(zip(ner.labels, ner.settings.thresholds(ner.labels), strict=True))
    for decoding in ner.decode(pipeline.prepare(texts)):
        found = {entity.offsets: entity.probability or 0.0 for entity in decoding.entities}
        yield {offsets: p for offsets, p in found.items() if p >= thresholds[offsets[2]]}
