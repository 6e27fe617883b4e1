"""Decisions of annotators: on single spans, and on texts that several of them annotated.

A span that was accepted is an entity, one that was rejected is known to be none of its label, and whatever nobody has
decided on is without annotation. `tener_ner` learns all three exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

from ...errors import check_choice
from .records import AnnotatedText, EntitySpan

ANSWERS = ("auto", "complete", "binary")
ANNOTATORS = ("first", "agreement", "majority", "error")
DECISIONS = ACCEPT, REJECT, IGNORE = "accept", "reject", "ignore"


@dataclass(frozen=True)
class DecisionOptions:
    """Options of reading decisions.

    answers: What the answer to a record is about: `complete`, the annotation of its whole text; `binary`, only the
        spans in it; `auto`, as the record says (Prodigy's `_is_binary` and `_view_id`).
    texts: Names of texts of Label Studio's tasks that were annotated, beside those in which something is marked.
    annotators: What to read of several annotations of a text: the `first`; what all of them say (`agreement`); what
        more than half of them say (`majority`); or nothing (`error`). One that is marked as ground truth stands alone.
    """

    answers: str = "auto"
    annotators: str = "first"
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("way to read answers", self.answers, ANSWERS)
        check_choice("way to read several annotators", self.annotators, ANNOTATORS)

    def is_binary(self, record: dict[str, Any]) -> bool:
        """Tell whether the answer to a record of Prodigy's is about the spans in it, and not about the whole text."""
        if self.answers != "auto":
            return self.answers == "binary"
        return bool(record.get("_is_binary", record.get("_view_id") == "ner"))


def decided(text: str, spans: Iterable[tuple[EntitySpan, str]], *, binary: bool) -> AnnotatedText:
    """Return a text by the answer to each span. binary: What is in no accepted span is without annotation."""
    by_answer: dict[str, list[EntitySpan]] = {answer: [] for answer in DECISIONS}
    for span, answer in spans:
        by_answer[answer].append(span)
    unknown = [(span.start, span.end) for answer in (REJECT, IGNORE) for span in by_answer[answer]]
    # Up to the end in UTF-16 units too: no text has more of them.
    missing = ((0, 2 * len(text)),) if binary else tuple(unknown)
    return AnnotatedText(text, tuple(by_answer[ACCEPT]), missing, incorrect=tuple(by_answer[REJECT]))


def combine(text: str, annotations: Sequence[Sequence[EntitySpan]], rule: str) -> AnnotatedText:
    """Return what all, or more than half, of several annotators say of a text.

    An entity has so many votes as annotators marked exactly it; a character is outside by the votes of those who marked
    nothing over it. What has too few votes for either is without annotation.
    """
    if len(annotations) == 1:
        return AnnotatedText(text, tuple(annotations[0]))
    needed = len(annotations) if rule == "agreement" else len(annotations) // 2 + 1
    # Two annotators may quote one span differently, as tools escape the ends of lines.
    by_place = [{(each.start, each.end, each.label): each for each in spans} for spans in annotations]
    votes = Counter(chain.from_iterable(by_place))
    marked = {place: span for places in by_place for place, span in places.items()}
    edges = sorted({edge for start, end, _ in votes for edge in (start, end)})
    missing = tuple(
        (start, end)
        for start, end in pairwise(edges)
        if sum(all(each.end <= start or end <= each.start for each in spans) for spans in annotations) < needed
    )
    return AnnotatedText(text, tuple(marked[place] for place, count in votes.items() if count >= needed), missing)
