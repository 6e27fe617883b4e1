"""The texts of a stream that a pipeline is least sure of, in bounded memory."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from spacy.language import Language
from spacy.tokens import Doc

from ...errors import check_choice
from ...pipeline.confidence import ConfidentPipe
from ...pipeline.finding import Recogniser
from .spreading import profiles, spread

BATCH = 256
POOL = 20
"""For each text that is asked for, so many of the most uncertain are compared."""


@dataclass(frozen=True)
class Suggestion:
    """A text, and how uncertain the pipeline is about it: 0 for not at all."""

    text: str
    uncertainty: float


def by_entropy(ner: ConfidentPipe, docs: Sequence[Doc]) -> list[float]:
    """The entropy of all readings, in nats, over the root of the number of tokens.

    The whole entropy grows with length, so that the longest texts would come first; a share of each token's would
    bring the shortest.
    """
    return [value / math.sqrt(max(1, len(doc))) for doc, value in zip(docs, ner.entropy(docs), strict=True)]


def by_margin(ner: ConfidentPipe, docs: Sequence[Doc]) -> list[float]:
    """One less the difference of the two most probable readings."""
    found = ner.readings(docs, k=2)
    return [1.0 - readings[0].probability + sum(each.probability for each in readings[1:]) for readings in found]


MEASURES: dict[str, Callable[[ConfidentPipe, Sequence[Doc]], list[float]]] = {
    "entropy": by_entropy,
    "margin": by_margin,
}


def suggest(
    nlp: Language, texts: Iterable[str], n: int, *, by: str = "entropy", known: Sequence[str] = ()
) -> list[Suggestion]:
    """The texts that are worth annotating most, each unlike those before it.

    texts: May be many: no more than the `POOL * n` most uncertain are kept at a time.
    by: One of `MEASURES`.
    known: Texts that are annotated already. They are left out, and so are texts much like them for longer.
    """
    check_choice("measure of uncertainty", by, tuple(MEASURES))
    pool = most_uncertain(nlp, texts, POOL * n, by=by, without={key(text) for text in known})
    vectors = profiles([each.text for each in pool])
    chosen = spread([each.uncertainty for each in pool], vectors, n, profiles(known) if known else None)
    return [pool[index] for index in chosen]


def most_uncertain(
    nlp: Language, texts: Iterable[str], n: int, *, by: str = "entropy", without: Set[str] = frozenset()
) -> list[Suggestion]:
    """The n most uncertain of some texts, most uncertain first, equal ones in their order. Each is there once."""
    heap: list[tuple[float, int, str]] = []
    held: set[str] = set()
    for index, text, uncertainty in _measured(nlp, texts, by):
        name = key(text)
        if name in held or name in without or (len(heap) == n and uncertainty <= heap[0][0]):
            continue
        held.add(name)
        heapq.heappush(heap, (uncertainty, -index, text))
        if len(heap) > n:
            held.discard(key(heapq.heappop(heap)[2]))
    return [Suggestion(text, uncertainty) for uncertainty, _, text in sorted(heap, reverse=True)]


def key(text: str) -> str:
    """What texts have in common that differ in nothing but white space."""
    return "".join(text.split())


def _measured(nlp: Language, texts: Iterable[str], by: str) -> Iterator[tuple[int, str, float]]:
    recogniser = Recogniser.of(nlp)
    rest = enumerate(texts)
    while batch := list(itertools.islice(rest, BATCH)):
        with nlp.memory_zone():
            values = MEASURES[by](recogniser.ner, recogniser.read(text for _, text in batch))
        for (index, text), value in zip(batch, values, strict=True):
            yield index, text, value
