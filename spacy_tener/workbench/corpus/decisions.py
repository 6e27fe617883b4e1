"""Decisions of annotators on single spans, and the annotations of several annotators combined.

An accepted span is an entity. A rejected span is known not to be an entity of its label. Everything else has missing
annotation. `tener_ner` learns from all three exactly.
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

    answers: Scope of a record's answer: `complete`, the annotation of its whole text; `binary`, only its spans; `auto`,
        as the record says (Prodigy's `_is_binary` and `_view_id`).
    texts: Names of annotated texts in Label Studio's tasks, in addition to those with entities.
    annotators: How to read several annotations of a text: the `first`; what all agree on (`agreement`); what more than
        half agree on (`majority`); or refuse them (`error`). An annotation marked as ground truth is read alone.
    """

    answers: str = "auto"
    annotators: str = "first"
    texts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("way to read answers", self.answers, ANSWERS)
        check_choice("way to read several annotators", self.annotators, ANNOTATORS)

    def is_binary(self, record: dict[str, Any]) -> bool:
        """Return whether the answer of a Prodigy record is about its spans only, not about the whole text."""
        if self.answers != "auto":
            return self.answers == "binary"
        return bool(record.get("_is_binary", record.get("_view_id") == "ner"))


def decided(text: str, spans: Iterable[tuple[EntitySpan, str]], *, binary: bool) -> AnnotatedText:
    """Return a text with its spans by answer. binary: Text outside of accepted spans has missing annotation."""
    by_answer: dict[str, list[EntitySpan]] = {answer: [] for answer in DECISIONS}
    for span, answer in spans:
        by_answer[answer].append(span)
    unknown = [(span.start, span.end) for answer in (REJECT, IGNORE) for span in by_answer[answer]]
    # Up to the end in UTF-16 units, too, of which a character has at most two.
    missing = ((0, 2 * len(text)),) if binary else tuple(unknown)
    return AnnotatedText(text, tuple(by_answer[ACCEPT]), missing, incorrect=tuple(by_answer[REJECT]))


def combine(text: str, annotations: Sequence[Sequence[EntitySpan]], rule: str) -> AnnotatedText:
    """Return the annotation that all, or more than half, of several annotators agree on.

    An entity gets the votes of annotators who marked exactly it; a character is outside by the votes of those who
    marked nothing there. Text with too few votes for either has missing annotation.
    """
    if len(annotations) == 1:
        return AnnotatedText(text, tuple(annotations[0]))
    needed = len(annotations) if rule == "agreement" else len(annotations) // 2 + 1
    # Two annotators may quote a span differently, since tools escape line breaks.
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
