"""Active learning: choose uncertain and diverse texts to annotate next.

1. Rank all texts by uncertainty, and keep `POOL * n` texts.
2. Choose n diverse texts from this pool with a greedy algorithm.

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
# Number of candidates in the pool for each text to choose.
POOL = 20

Profiles = NDArray[np.float32]
# Number of dimensions of a text's feature vector, see `profiles`.
WIDTH = 1024
# Lengths of the character n-grams that `profiles` counts.
ORDERS = (2, 3)
_VARIETY = 4
_URL = re.compile(r"https?://\S+")
_REPEATED = re.compile(r"(.{1,8}?)\1+", re.DOTALL)
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)


@dataclass(frozen=True)
class Suggestion:
    """A text that was chosen for annotation.

    record (Record): The input record that contains the text.
    uncertainty (float): The pipeline's uncertainty about the text, at least 0.
    """

    record: Record
    uncertainty: float

    @property
    def text(self) -> str:
        """Return the record's text."""
        return str(self.record[TEXT_COLUMN])


def uncertainties(ner: TenerNER, docs: Sequence[Doc]) -> list[float]:
    """Return the uncertainty about each text: the entropy of the distribution over label sequences, divided by the
    square root of the number of tokens.

    Without normalization, long texts would rank first, because the entropy grows with the text length. The entropy per
    token would rank short texts first.

    RETURNS (List[float]): Normalized entropy of each text, in nats.
    """
    return [decoding.entropy / math.sqrt(max(1, len(decoding.doc))) for decoding in ner.decode(docs)]


def suggest(
    nlp: Language | None, records: Iterable[Record], n: int, *, annotated: Sequence[str] = ()
) -> list[Suggestion]:
    """Choose n texts to annotate next. Prefer uncertain and diverse texts to repetitive texts.

    nlp (Optional[Language]): The pipeline. Without a pipeline, texts are ranked by `variety` instead of uncertainty.
    records (Iterable[Record]): A stream of records. At most `POOL * n` records are kept in memory.
    n (int): Number of texts to choose.
    annotated (Sequence[str]): Texts that are already annotated. They are not chosen, and texts similar to them get a
        lower rank.
    RETURNS (List[Suggestion]): The chosen texts, by descending rank.
    """
    pool = most_uncertain(nlp, records, POOL * n, excluded={text_key(text) for text in annotated})
    vectors = profiles([suggestion.text for suggestion in pool])
    chosen = select_diverse([suggestion.uncertainty for suggestion in pool], vectors, n, annotated)
    return [pool[index] for index in chosen]


def make_tasks(nlp: Language, chosen: Sequence[Suggestion], labels: Sequence[str]) -> list[Task]:
    """Create annotation tasks from chosen texts, with the pipeline's entities as suggestions.

    A task's probability and score refer to the best label sequence of the first `tener_ner` in the pipeline. Without a
    `tener_ner`, tasks have no entities.

    chosen (Sequence[Suggestion]): The chosen texts.
    labels (Sequence[str]): Only entities with these labels are included.
    """
    # Tokenize again, because components such as `merge_entities` may change the tokens of processed Docs.
    docs = [nlp.tokenizer(suggestion.text) for suggestion in chosen]
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
    """Return the n most uncertain texts, by descending uncertainty.

    A text's uncertainty is multiplied by its `variety`, so that repetitive texts get a lower rank. Of several
    near-duplicates (see `near_duplicate_key`), only the first is returned. Texts with equal uncertainty keep their
    input order.

    excluded (Set[str]): The `text_key` of texts to skip.
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
    # The negative input index breaks ties. It is unique, so records are never compared.
    return [Suggestion(record, uncertainty) for uncertainty, _, record in sorted(heap, reverse=True)]


def near_duplicate_key(text: str) -> str:
    """Return a normalized form of the text, which is equal for near-duplicates.

    The text is case-folded, all digits are replaced by 0, and repeated substrings are collapsed. URLs, whitespace,
    punctuation and symbols are removed. If the text has no letters or digits, punctuation and symbols are kept.
    """
    plain = text_key(_URL.sub("", text.casefold()))
    letters = "".join("0" if char.isdigit() else char for char in plain if char.isalnum())
    return _REPEATED.sub(r"\1", letters or plain)


def variety(text: str) -> float:
    """Return the type-token ratio of the text's character 4-grams: the number of distinct 4-grams, divided by the total
    number.

    The ratio is low for repetitive texts. Such texts have a high entropy, because the same uncertain decision occurs
    many times, but annotating them is not very informative.
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
    """Return a feature vector for each text, to measure text similarity.

    The features are counts of character bigrams and trigrams, hashed to `WIDTH` dimensions. The square root of the
    counts reduces the weight of repeated n-grams. Vectors have the L2 norm 1, so their dot product is the cosine
    similarity.

    RETURNS (Profiles): Feature vectors. *Shape:* (texts, WIDTH)
    """
    counted = np.empty((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(counted, texts, strict=True):
        row[:] = np.sqrt(np.bincount(_buckets(text), minlength=WIDTH))
    norms = np.linalg.norm(counted, axis=1, keepdims=True)
    counted /= np.maximum(norms, 1e-9)
    return counted


def _buckets(text: str) -> NDArray[np.int64]:
    """Return the hash bucket of each character n-gram in a text.

    The text is padded with a space on both sides, so that very short texts have n-grams, too. The hash function is
    platform-independent, so that the same texts are chosen on all machines.

    RETURNS (NDArray[np.int64]): Indices from 0 to WIDTH - 1, for all bigrams and then for all trigrams.
    """
    codes = np.frombuffer(f" {text.casefold()} ".encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    codes = codes.astype(np.uint64)
    # Polynomial hash: the sum of all code points, each multiplied by a prime that depends on the position. The n-gram
    # length is the initial value, so that bigrams and trigrams differ.
    hashed = [
        sum((codes[index : codes.size - n + 1 + index] * _PRIMES[index] for index in range(n)), start=np.uint64(n))
        for n in ORDERS
        if codes.size >= n
    ]
    mixed = np.concatenate(hashed)
    # Mix the bits with an xorshift and a multiplication. The highest 10 bits are the bucket, since WIDTH is 2 ** 10.
    mixed ^= mixed >> np.uint64(29)
    buckets: NDArray[np.int64] = ((mixed * _PRIMES[0]) >> np.uint64(54)).astype(np.int64)
    return buckets


def select_diverse(weights: Sequence[float], vectors: Profiles, n: int, annotated: Iterable[str] = ()) -> list[int]:
    """Choose n diverse texts with a greedy algorithm.

    Each step chooses the text with the highest score. The score is the text's weight, multiplied by the cosine distance
    to the nearest text that was chosen before. If several texts have the same score, the first one is chosen.

    weights (Sequence[float]): Weight of each text, at least 0.
    vectors (Profiles): Feature vectors from `profiles`. *Shape:* (texts, WIDTH)
    n (int): Number of texts to choose.
    annotated (Iterable[str]): Texts that are already annotated. The distance to these texts counts as well.
    RETURNS (List[int]): Indices of the chosen texts, in the order in which they were chosen.
    """
    weight = np.asarray(weights, dtype=np.float64)
    nearest = np.zeros(len(weight))
    # Process annotated texts in batches to limit memory, since each feature vector takes 4 KB.
    for part in minibatch(annotated, WIDTH):
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
