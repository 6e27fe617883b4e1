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
from ...pipeline.entities import FoundEntity
from ...pipeline.finding import PipelineNER
from ...pipeline.lac import Lac
from ...pipeline.tokenizer import make_char_tokenizer
from ...pipeline.units import SENTENCE_ENDS

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


class FileReader:
    """The entities that an exported file finds. graph (bytes): The file."""

    def __init__(self, graph: bytes) -> None:
        self.session = open_session(graph, "The exported file")
        [about] = self._run([], "about")
        self.about: dict[str, Any] = json.loads(about[0])

    def _run(self, texts: Sequence[str], *outputs: str) -> list[Any]:
        codes, lengths = code_points("".join(texts)), lengths_of(texts)
        results: list[Any] = self.session.run(
            list(outputs), {"codes": codes.astype(np.int32), "lengths": lengths.astype(np.int32)}
        )
        return results

    def entities(self, texts: Sequence[str]) -> Iterator[list[FoundEntity]]:
        """Yield the entities of each text."""
        tags, a, b = self._run(texts, "tags", "a", "b")
        begin = 0
        for text in texts:
            found, start = [], 0
            for i in range(begin, begin + len(text)):
                position, _, label = self.about["tags"][tags[i]].partition("-")
                start = i if position in "BS" else start
                if position in "ES":
                    probability = min(1.0, float(np.exp(a[start] + b[i]))) if self.about["probabilities"] else None
                    if probability is None or probability >= self.about["thresholds"].get(label, 0.0):
                        found.append(FoundEntity(start - begin, i + 1 - begin, label, probability))
            yield found
            begin += len(text)


def sample_texts(nlp: Language, count: int = 100) -> list[str]:
    """Return texts of the characters that a pipeline has seen, and of special ones, around the edges of windows."""
    characters = [text for text in nlp.vocab.strings if len(text) == 1]
    generator = np.random.default_rng(0)
    signs = np.array([*(characters or "a") * 3, *_SPECIAL])
    lengths = generator.choice(_SAMPLE_SIZES, count)
    return ["", *("".join(generator.choice(signs, length)) for length in lengths)]


def compare(nlp: Language, component: str, graph: bytes, texts: Sequence[str]) -> Comparison:
    """Compare an exported file with a component of its pipeline."""
    reader = FileReader(graph)
    n_same, differing, difference = 0, list[str](), 0.0
    for begin in range(0, len(texts), _COMPARED_AT_ONCE):
        batch = texts[begin : begin + _COMPARED_AT_ONCE]
        for text, *sides in zip(batch, _find(nlp, component, batch), reader.entities(batch), strict=True):
            expected, found = ({entity.offsets: entity.probability or 0.0 for entity in side} for side in sides)
            same = expected.keys() & found.keys()
            n_same += len(same)
            if len(same) < max(len(expected), len(found)):
                differing.append(text)
            difference = max([difference, *(abs(expected[span] - found[span]) for span in same)])
    return Comparison(len(texts), sum(map(len, texts)), n_same, differing, difference)


def _find(nlp: Language, component: str, texts: Sequence[str]) -> Iterator[list[FoundEntity]]:
    """Yield the entities of each text that a component finds, at the characters where they are."""
    pipe = nlp.get_pipe(component)
    if isinstance(pipe, Lac):
        docs = pipe.pipe(map(make_char_tokenizer()(nlp), texts))
        yield from ([FoundEntity(ent.start_char, ent.end_char, ent.label_, None) for ent in doc.ents] for doc in docs)
        return
    pipeline = PipelineNER.of(nlp, component)
    ner = pipeline.ner
    thresholds = dict(zip(ner.labels, ner.settings.thresholds(ner.labels), strict=True))
    for decoding in ner.decode(pipeline.prepare(texts)):
        yield [entity for entity in decoding.entities if (entity.probability or 0.0) >= thresholds[entity.label]]
