"""Active learning: choose the texts to annotate next, which are uncertain and differ from each other.

    raw texts ── uncertainty ── pool of the 20 n most uncertain texts ── greedy diverse selection ── n texts

Used by the command `suggest`.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from spacy.util import minibatch

from ..annotate.answers import ID_COLUMN, TEXT_COLUMN, Record
from ..annotate.tasks import sequence_score
from ..corpora.folds import text_key
from ..pipeline.finding import PipelineNER, crf_pipes, found_entities
from ..pipeline.tener_ner import TenerNER
from .annotation_tools import Task

BATCH = 256
# Size of the pool of the most uncertain texts, as a multiple of the number of texts to choose.
POOL = 20

Profiles = NDArray[np.float32]
# Number of dimensions of a profile.
WIDTH = 1024
# Lengths of the character n-grams in profiles.
ORDERS = (2, 3)
_VARIETY = 4
_URL = re.compile(r"https?://\S+")
_REPEATED = re.compile(r"(.{1,8}?)\1+", re.DOTALL)
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)


@dataclass(frozen=True)
class Suggestion:
    """A chosen record, and the uncertainty of the pipeline about its text, which is 0 or more."""

    record: Record
    uncertainty: float

    @property
    def text(self) -> str:
        """The text of the record."""
        return str(self.record[TEXT_COLUMN])


def uncertainties(ner: TenerNER, docs: Sequence[Doc]) -> list[float]:
    """Return the entropy of the distribution over all label sequences of each text, in nats, divided by the square root
    of the number of tokens.

    The entropy grows with the length of a text, so that the entropy alone would rank long texts first. The entropy per
    token would rank short texts first.
    """
    return [decoding.entropy / math.sqrt(max(1, len(decoding.doc))) for decoding in ner.decode(docs)]


def suggest(
    nlp: Language | None, records: Iterable[Record], n: int, *, annotated: Sequence[str] = ()
) -> list[Suggestion]:
    """Choose the n texts to annotate next. The texts are uncertain, differ from each other, and are not repetitive.

    nlp (Optional[Language]): The pipeline. Without a pipeline, the uncertainty of a text is its `variety`.
    records (Iterable[Record]): A stream of records. Only the `POOL * n` most uncertain records are kept in memory.
    n (int): Number of texts to choose.
    annotated (Sequence[str]): Texts that are already annotated. They are not chosen, and similar texts are ranked
        lower.
    RETURNS (List[Suggestion]): The chosen texts, best first.
    """
    pool = most_uncertain(nlp, records, POOL * n, excluded={text_key(text) for text in annotated})
    vectors = profiles([suggestion.text for suggestion in pool])
    chosen = select_diverse([suggestion.uncertainty for suggestion in pool], vectors, n, annotated)
    return [pool[index] for index in chosen]


def make_tasks(nlp: Language, chosen: Sequence[Suggestion], labels: Sequence[str]) -> list[Task]:
    """Return the chosen texts with the entities that the pipeline finds.

    The probability and the score of a text belong to the best label sequence of the first `tener_ner`. If the pipeline
    has no `tener_ner`, texts have no entities.

    labels (Sequence[str]): Labels of the entities to return.
    """
    docs = [nlp.tokenizer(suggestion.text) for suggestion in chosen]  # later components may merge tokens
    columns = [(suggestion.uncertainty, suggestion.record.get(ID_COLUMN)) for suggestion in chosen]
    if not crf_pipes(nlp):
        return [
            Task(doc, (), 0.0, uncertainty, 0.0, name) for doc, (uncertainty, name) in zip(docs, columns, strict=True)
        ]
    pipeline = PipelineNER.of(nlp)
    decodings = list(pipeline.ner.decode(pipeline.prepare(suggestion.text for suggestion in chosen)))
    sequences = [decoding.k_best(1)[0] for decoding in decodings]
    found = found_entities(nlp, pipeline.complete(decodings), with_spancat=False)
    tasks = []
    rows = zip(docs, sequences, found, columns, strict=True)
    for doc, sequence, entities, (uncertainty, record_id) in rows:
        labelled = [entity for entity in entities if entity.label in labels]
        score = sequence_score(sequence.log_probability, len(doc.text))
        tasks.append(Task(doc, labelled, sequence.probability, uncertainty, score, record_id))
    return tasks


def most_uncertain(
    nlp: Language | None, records: Iterable[Record], n: int, *, excluded: Set[str] = frozenset()
) -> list[Suggestion]:
    """Return the n most uncertain texts, most uncertain first. Ties keep the order of the input.

    The uncertainty is multiplied by the text's `variety`. Only the first of near-duplicates is kept, see
    `near_duplicate_key`.

    excluded (Set[str]): The `text_key` of each text to exclude.
    """
    heap: list[tuple[float, int, Record]] = []
    keys: set[str] = set()
    for number, (record, uncertainty) in enumerate(_measure(nlp, records)):
        text = record[TEXT_COLUMN]
        key = near_duplicate_key(text)
        if key in keys or text_key(text) in excluded or (len(heap) == n and uncertainty <= heap[0][0]):
            continue
        keys.add(key)
        heapq.heappush(heap, (uncertainty, -number, record))
        if len(heap) > n:
            keys.discard(near_duplicate_key(heapq.heappop(heap)[2][TEXT_COLUMN]))
    # Ties are resolved by the numbers, which are unique. Records cannot be compared.
    return [Suggestion(record, uncertainty) for uncertainty, _, record in sorted(heap, reverse=True)]


def near_duplicate_key(text: str) -> str:
    """Return a key that is the same for near-duplicates.

    The key contains the letters and digits in lower case, without URLs and repetitions. All digits become 0. The key of
    a text without letters and digits contains its other characters.
    """
    plain = text_key(_URL.sub("", text.casefold()))
    letters = "".join("0" if char.isdigit() else char for char in plain if char.isalnum())
    return _REPEATED.sub(r"\1", letters or plain)


def variety(text: str) -> float:
    """Return the number of distinct character 4-grams divided by the number of all 4-grams.

    A repetitive text has a high entropy, because the same uncertain decision occurs many times. But its annotation only
    resolves this decision.
    """
    size = len(text) - _VARIETY + 1
    return len({text[start : start + _VARIETY] for start in range(size)}) / size if size > 0 else 1.0


def _measure(nlp: Language | None, records: Iterable[Record]) -> Iterator[tuple[Record, float]]:
    if nlp is None:
        yield from ((record, variety(record[TEXT_COLUMN])) for record in records)
        return
    pipeline = PipelineNER.of(nlp)
    for batch in minibatch(records, BATCH):
        texts = [record[TEXT_COLUMN] for record in batch]
        with nlp.memory_zone():
            values = uncertainties(pipeline.ner, pipeline.prepare(texts))
        for record, text, value in zip(batch, texts, values, strict=True):
            yield record, value * variety(text)


def profiles(texts: Sequence[str]) -> Profiles:
    """Return the profile of each text: hashed counts of character bigrams and trigrams, with the L2 norm 1.

    The square roots of counts are used, to reduce the weight of repeated strings. The hash function does not depend on
    the machine, so that the choice of texts can be reproduced.

    RETURNS (Profiles): The profiles. *Shape:* (texts, WIDTH)
    """
    counted = np.empty((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(counted, texts, strict=True):
        row[:] = np.sqrt(np.bincount(_buckets(text), minlength=WIDTH))
    norms = np.linalg.norm(counted, axis=1, keepdims=True)
    counted /= np.maximum(norms, 1e-9)
    return counted


def _buckets(text: str) -> NDArray[np.int64]:
    """Return the dimension of each n-gram in a text. The text is padded with spaces, so that a short text has n-grams.

    An n-gram is hashed by the sum of its code points times fixed primes. The last steps mix the bits, and keep the ten
    highest bits (WIDTH is 2 ** 10).
    """
    codes = np.frombuffer(f" {text.casefold()} ".encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    codes = codes.astype(np.uint64)
    hashed = [
        sum((codes[index : codes.size - n + 1 + index] * _PRIMES[index] for index in range(n)), start=np.uint64(n))
        for n in ORDERS
        if codes.size >= n
    ]
    mixed = np.concatenate(hashed)
    mixed ^= mixed >> np.uint64(29)
    buckets: NDArray[np.int64] = ((mixed * _PRIMES[0]) >> np.uint64(54)).astype(np.int64)
    return buckets


def select_diverse(weights: Sequence[float], vectors: Profiles, n: int, annotated: Iterable[str] = ()) -> list[int]:
    """Choose n diverse texts by a greedy algorithm.

    The next text maximizes the product of its weight and its cosine distance to the nearest text that is already
    chosen.

    weights (Sequence[float]): The weight of each text, which must be 0 or more.
    vectors (Profiles): The profiles of the texts. *Shape:* (texts, WIDTH)
    n (int): Number of texts to choose.
    annotated (Iterable[str]): Annotated texts, which are treated like chosen texts.
    RETURNS (List[int]): The indices of the chosen texts, in order. In case of ties, the first text is chosen.
    """
    weight = np.asarray(weights, dtype=np.float64)
    nearest = np.zeros(len(weight))
    for part in minibatch(annotated, WIDTH):  # in batches, since each profile takes 4 KB of memory
        np.maximum(nearest, (vectors @ profiles(part).T).max(axis=1), out=nearest)
    chosen: list[int] = []
    free = np.ones(len(weight), dtype=bool)
    for _ in range(min(n, len(weight))):
        gain = np.where(free, weight * np.maximum(1.0 - nearest, 0.0), -1.0)
        best = int(gain.argmax())
        chosen.append(best)
        free[best] = False
        np.maximum(nearest, vectors @ vectors[best], out=nearest)
    return chosen
