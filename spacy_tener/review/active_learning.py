"""Choice of the texts to annotate next from a stream: uncertain texts that differ from each other."""

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
from ..corpora.folds import text_key
from ..pipeline.doc_entities import found_entities, reading_score
from ..pipeline.finding import PipelineNER, crf_pipes
from ..pipeline.tener_ner import TenerNER
from .annotation_tools import Task

BATCH = 256
POOL = 20
"""Candidates, the most uncertain texts, for each text to choose."""

Profiles = NDArray[np.float32]
WIDTH = 1024
"""Length of a profile."""
ORDERS = (2, 3)
"""Lengths of the character n-grams that are counted."""
_VARIETY = 4
_URL = re.compile(r"https?://\S+")
_REPEATED = re.compile(r"(.{1,8}?)\1+", re.DOTALL)
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)


@dataclass(frozen=True)
class Suggestion:
    """A record and the pipeline's uncertainty about its text, 0 or more."""

    record: Record
    uncertainty: float

    @property
    def text(self) -> str:
        return str(self.record[TEXT_COLUMN])


def uncertainties(ner: TenerNER, docs: Sequence[Doc]) -> list[float]:
    """Return the entropy over all readings, in nats, divided by the square root of the number of tokens.

    Entropy grows with length, and would rank the longest texts first; entropy per token would rank the shortest first.
    """
    return [decoding.entropy / math.sqrt(max(1, len(decoding.doc))) for decoding in ner.decode(docs)]


def suggest(
    nlp: Language | None, records: Iterable[Record], n: int, *, annotated: Sequence[str] = ()
) -> list[Suggestion]:
    """Choose the n texts to annotate next: uncertain ones that differ from each other and do not repeat themselves.

    nlp (Optional[Language]): The pipeline, or None without a model: then the uncertainty of a text is its `variety`.
    records (Iterable[Record]): Any number. Only the `POOL * n` most uncertain are held in memory.
    n (int): How many texts to choose.
    annotated (Sequence[str]): Texts that are annotated already. They are left out, and similar texts come later.
    RETURNS (List[Suggestion]): The chosen texts, the best first.
    """
    pool = most_uncertain(nlp, records, POOL * n, excluded={text_key(text) for text in annotated})
    vectors = profiles([suggestion.text for suggestion in pool])
    chosen = select_diverse([suggestion.uncertainty for suggestion in pool], vectors, n, annotated)
    return [pool[index] for index in chosen]


def make_tasks(nlp: Language, chosen: Sequence[Suggestion], labels: Sequence[str]) -> list[Task]:
    """Return texts with the entities that the pipeline finds and that have one of the labels; with no entities if the
    pipeline has no `tener_ner`.

    Scores are those of the best reading by the first `tener_ner`.
    """
    docs = [nlp.tokenizer(suggestion.text) for suggestion in chosen]  # later components may merge tokens
    columns = [(suggestion.uncertainty, suggestion.record.get(ID_COLUMN)) for suggestion in chosen]
    if not crf_pipes(nlp):
        return [
            Task(doc, (), 0.0, uncertainty, 0.0, name) for doc, (uncertainty, name) in zip(docs, columns, strict=True)
        ]
    pipeline = PipelineNER.of(nlp)
    decodings = list(pipeline.ner.decode(pipeline.prepare(suggestion.text for suggestion in chosen)))
    readings = [decoding.k_best(1)[0] for decoding in decodings]
    found = found_entities(nlp, pipeline.complete(decodings), with_spancat=False)
    tasks = []
    rows = zip(docs, readings, found, columns, strict=True)
    for doc, reading, entities, (uncertainty, record_id) in rows:
        labelled = [entity for entity in entities if entity.label in labels]
        score = reading_score(reading.log_probability, len(doc.text))
        tasks.append(Task(doc, labelled, reading.probability, uncertainty, score, record_id))
    return tasks


def most_uncertain(
    nlp: Language | None, records: Iterable[Record], n: int, *, excluded: Set[str] = frozenset()
) -> list[Suggestion]:
    """Return the n most uncertain texts, most uncertain first, ties in input order.

    Of near-duplicates (see `near_duplicate_key`) it keeps the first. Uncertainty is multiplied by the text's `variety`.

    excluded (Set[str]): The keys of texts to leave out.
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
    # As in the heap, numbers decide between equal uncertainties: records are not compared.
    return [Suggestion(record, uncertainty) for uncertainty, _, record in sorted(heap, reverse=True)]


def near_duplicate_key(text: str) -> str:
    """Return a key that near-duplicates share: the text's letters and digits in lower case, digits as 0, repeated
    strings once, and no URLs. A text without letters and digits keeps its other characters."""
    plain = text_key(_URL.sub("", text.casefold()))
    letters = "".join("0" if char.isdigit() else char for char in plain if char.isalnum())
    return _REPEATED.sub(r"\1", letters or plain)


def variety(text: str) -> float:
    """Return the number of distinct 4-grams of characters over the number of all, above 0 and at most 1.

    A repetitive text has a large entropy, since one uncertain decision occurs many times, but annotating it answers
    only that one.
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
    """Return hashed counts of each text's character bigrams and trigrams, as vectors of norm 1.

    Square roots of counts reduce the weight of repeated strings. The same on every machine.

    RETURNS (Profiles): *Shape:* (texts, WIDTH)
    """
    counted = np.empty((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(counted, texts, strict=True):
        row[:] = np.sqrt(np.bincount(_buckets(text), minlength=WIDTH))
    norms = np.linalg.norm(counted, axis=1, keepdims=True)
    counted /= np.maximum(norms, 1e-9)
    return counted


def _buckets(text: str) -> NDArray[np.int64]:
    """Return the index in a profile of each n-gram. Texts are padded with spaces, so that the shortest has some."""
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
    """Choose n texts greedily: next is the one with the largest product of weight and distance to the nearest chosen.

    weights (Sequence[float]): The weight of each text, 0 or more.
    vectors (Profiles): The profiles of the texts. *Shape:* (texts, WIDTH)
    n (int): How many texts to choose.
    annotated (Iterable[str]): Texts that count as chosen already.
    RETURNS (List[int]): The indices of the chosen texts, in order; of ties the first.
    """
    weight = np.asarray(weights, dtype=np.float64)
    nearest = np.zeros(len(weight))
    for part in minibatch(annotated, WIDTH):  # a profile takes 4 KB: there may be many texts
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
