"""Compare the entities that an exported ONNX file finds with those that the original pipeline finds.

The command `export` uses this module after it has written the file.
"""

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
_MAX_PAIRS, _PAIRS_OF_TEXT = 5000, 50
_SAMPLE_SIZES = (1, 2, 5, 20, 60, 190, 200, 201, 400)


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison between an exported ONNX file and its pipeline.

    n_texts, n_characters (int): Number of compared texts, and their total number of characters.
    n_equal (int): Number of entities that both the file and the pipeline find.
    different_texts (list[str]): Texts in which the file and the pipeline find different entities.
    max_difference (float): Maximum difference between the probabilities of an entity.
    """

    n_texts: int
    n_characters: int
    n_equal: int
    different_texts: list[str]
    max_difference: float


def sample_texts(nlp: Language, component: str, count: int = 100) -> list[str]:
    """Return random texts to compare an exported file with its pipeline.

    The texts consist of characters from the pipeline's vocabulary, unusual characters such as emoji, bigrams that have
    an embedding, and words from the component's entity list. The text lengths include values around the usual window
    size.
    """
    strings = [text for text in nlp.vocab.strings if len(text) == 1 or text.isspace()]
    generator = np.random.default_rng(0)
    characters = np.array([*(strings or "a") * 3, *_SPECIAL], dtype=object)
    lengths = generator.choice(_SAMPLE_SIZES, count)
    texts = ["", *("".join(generator.choice(characters, length)) for length in lengths)]
    pairs = generator.permutation([*known_pairs(nlp, component)]).tolist()[:_MAX_PAIRS]
    # `END_MARK` stands for the end of a text. A bigram with this mark is tested by a text with a single character.
    texts += [pair.removesuffix(END_MARK) for pair in pairs if pair.endswith(END_MARK)]
    pairs = [pair for pair in pairs if not pair.endswith(END_MARK)]
    words = generator.permutation([*listed_words(nlp, nlp.get_pipe(component)).entries]).tolist()[:_MAX_PAIRS]
    return texts + [
        "".join(parts[begin : begin + _PAIRS_OF_TEXT])
        for parts in (pairs, words)
        for begin in range(0, len(parts), _PAIRS_OF_TEXT)
    ]


def known_pairs(nlp: Language, component: str) -> set[str]:
    """Return the character bigrams that have an embedding in a component.

    Bigrams are left out if a character's string cannot be recovered from its hash.
    """
    pipe = nlp.get_pipe(component)
    nodes = pipe.model.walk() if isinstance(pipe, TenerNER) else ()
    vocabularies = [node.attrs.get("vocabulary") for node in nodes]
    found: set[str] = set()
    for vocabulary in vocabularies:
        if isinstance(vocabulary, CharVocabulary):
            keys, number_of, pairs = number_strings(vocabulary, nlp)
            texts = {number: text for text, number in reversed(number_of.items())} | {keys.size + 1: END_MARK}
            pair_codes = pair_of(np.array([*pairs], dtype=np.int64), keys.size)
            found.update(
                texts[first] + texts[second] for first, second in zip(*map(np.ndarray.tolist, pair_codes), strict=True)
            )
    return found


def compare(nlp: Language, component: str, graph: bytes, texts: Sequence[str]) -> Comparison:
    """Compare the entities that a component and its exported file find in texts.

    graph (bytes): The exported file.
    """
    from .reader import load  # not imported at the top, since it requires ONNX Runtime

    reader = load(graph)
    n_equal, different_texts, max_difference = 0, list[str](), 0.0
    for begin in range(0, len(texts), _COMPARED_AT_ONCE):
        batch = texts[begin : begin + _COMPARED_AT_ONCE]
        for text, expected, entities in zip(batch, _find(nlp, component, batch), reader.batch(batch), strict=True):
            found = {
                (entity["start"], entity["end"], entity["label"]): entity["probability"] or 0.0 for entity in entities
            }
            equal = expected.keys() & found.keys()
            n_equal += len(equal)
            if len(equal) < max(len(expected), len(found)):
                different_texts.append(text)
            max_difference = max([max_difference, *(abs(expected[span] - found[span]) for span in equal)])
    return Comparison(len(texts), sum(map(len, texts)), n_equal, different_texts, max_difference)


def _find(nlp: Language, component: str, texts: Sequence[str]) -> Iterator[dict[EntityOffsets, float]]:
    """Yield the probability of each entity that a component finds, as one dictionary per text.

    The probability is 0.0 if the component is `lac`, which does not compute probabilities.
    """
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
        # Words in an entity list can have labels that the model does not have. These labels have no threshold.
        yield {offsets: p for offsets, p in found.items() if p >= thresholds.get(offsets[2], 0.0)}
