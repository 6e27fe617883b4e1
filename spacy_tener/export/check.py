"""What a file finds in texts, beside what its pipeline finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from spacy.language import Language

from ..embedders.char_embed import CharVocabulary
from ..features.keys import END_MARK
from ..pipeline.entities import read_entities
from ..pipeline.finding import PipelineNER
from ..pipeline.lac import Lac
from ..pipeline.tener_ner import TenerNER
from ..pipeline.tokenizer import make_char_tokenizer
from ..pipeline.units import SENTENCE_ENDS
from ..types import EntityOffsets
from .code_points import number_strings, pair_of
from .onnx_model import listed_words

_COMPARED_AT_ONCE = 128
_SPECIAL = "\n\r\t  \u3000\u2028\0\u0301\u200b😀𠀀" + SENTENCE_ENDS
_MOST_PAIRS, _PAIRS_OF_TEXT = 5000, 50
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


def sample_texts(nlp: Language, component: str, count: int = 100) -> list[str]:
    """Return texts of what a component's tables have rows for, of characters that the pipeline has seen, and of special
    ones, around the edges of windows."""
    strings = [text for text in nlp.vocab.strings if len(text) == 1 or text.isspace()]
    generator = np.random.default_rng(0)
    signs = np.array([*(strings or "a") * 3, *_SPECIAL], dtype=object)
    lengths = generator.choice(_SAMPLE_SIZES, count)
    texts = ["", *("".join(generator.choice(signs, length)) for length in lengths)]
    pairs = generator.permutation([*known_pairs(nlp, component)]).tolist()[:_MOST_PAIRS]
    # A pair that ends a text is a text.
    texts += [pair.removesuffix(END_MARK) for pair in pairs if pair.endswith(END_MARK)]
    pairs = [pair for pair in pairs if not pair.endswith(END_MARK)]
    words = generator.permutation([*listed_words(nlp, nlp.get_pipe(component)).entries]).tolist()[:_MOST_PAIRS]
    return texts + [
        "".join(parts[begin : begin + _PAIRS_OF_TEXT])
        for parts in (pairs, words)
        for begin in range(0, len(parts), _PAIRS_OF_TEXT)
    ]


def known_pairs(nlp: Language, component: str) -> set[str]:
    """Return the pairs of characters that a component has rows for, as far as they are known."""
    pipe = nlp.get_pipe(component)
    nodes = pipe.model.walk() if isinstance(pipe, TenerNER) else ()
    vocabularies = [node.attrs.get("vocabulary") for node in nodes]
    found: set[str] = set()
    for vocabulary in vocabularies:
        if isinstance(vocabulary, CharVocabulary):
            keys, number_of, pairs = number_strings(vocabulary, nlp)
            texts = {number: text for text, number in reversed(number_of.items())} | {keys.size + 1: END_MARK}
            halves = pair_of(np.array([*pairs], dtype=np.int64), keys.size)
            found.update(
                texts[first] + texts[second] for first, second in zip(*map(np.ndarray.tolist, halves), strict=True)
            )
    return found


def compare(nlp: Language, component: str, graph: bytes, texts: Sequence[str]) -> Comparison:
    """Compare what a component of a pipeline finds with what the reader of its exported file does."""
    from .reader import load  # here, as it needs ONNX Runtime

    reader = load(graph)
    n_same, differing, difference = 0, list[str](), 0.0
    for begin in range(0, len(texts), _COMPARED_AT_ONCE):
        batch = texts[begin : begin + _COMPARED_AT_ONCE]
        for text, expected, entities in zip(batch, _find(nlp, component, batch), reader.batch(batch), strict=True):
            found = {
                (entity["start"], entity["end"], entity["label"]): entity["probability"] or 0.0 for entity in entities
            }
            same = expected.keys() & found.keys()
            n_same += len(same)
            if len(same) < max(len(expected), len(found)):
                differing.append(text)
            difference = max([difference, *(abs(expected[span] - found[span]) for span in same)])
    return Comparison(len(texts), sum(map(len, texts)), n_same, differing, difference)


def _find(nlp: Language, component: str, texts: Sequence[str]) -> Iterator[dict[EntityOffsets, float]]:
    """Yield the probabilities of the entities that a component finds in each text; 0 without."""
    pipe = nlp.get_pipe(component)
    if isinstance(pipe, Lac):
        docs = pipe.pipe(map(make_char_tokenizer()(nlp), texts))
        yield from ({entity.offsets: 0.0 for entity in read_entities(doc)} for doc in docs)
        return
    pipeline = PipelineNER.of(nlp, component)
    ner = pipeline.ner
    thresholds = dict(zip(ner.labels, ner.settings.thresholds(ner.labels), strict=True))
    for decoding in ner.decode(pipeline.prepare(texts)):
        found = {entity.offsets: entity.probability or 0.0 for entity in decoding.entities}
        # A listed word may have a label that the model lacks.
        yield {offsets: p for offsets, p in found.items() if p >= thresholds.get(offsets[2], 0.0)}
