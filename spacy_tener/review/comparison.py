"""Compare two annotations of the same texts, for example by two annotators, or by a language model and a person.

Used by the command `review --compare`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from spacy.tokens import Doc

from ..pipeline.entities import FoundEntity, offsets_of
from .suspected_errors import ReviewedDoc, annotated_only, disagreements


def compare_annotations(docs: Sequence[Doc], others: Iterable[Doc]) -> list[ReviewedDoc]:
    """Compare the entities of Docs with another annotation of the same texts.

    Docs are matched by their texts, so the order and the tokens can differ. Docs whose text has no other annotation are
    left out. Differences are ignored where one of the annotations is missing. Only `doc.ents` is compared.

    docs (Sequence[Doc]): The annotation to review.
    others (Iterable[Doc]): The other annotation.
    RETURNS (list[ReviewedDoc]): The compared Docs. Their probability is 1 if the annotations are equal, otherwise 0.
    """
    by_text: dict[str, list[Doc]] = defaultdict(list)
    for other in others:
        by_text[other.text].append(other)
    # If a text occurs several times, its first Docs are compared with each other, then its second Docs, and so on.
    pairs = [(number, doc, by_text[doc.text].pop(0)) for number, doc in enumerate(docs) if by_text[doc.text]]
    return [_compare(*pair) for pair in pairs]


def _compare(number: int, doc: Doc, other: Doc) -> ReviewedDoc:
    here, there = ([FoundEntity(*offsets_of(ent), None) for ent in annotated.ents] for annotated in (doc, other))
    offsets, other_offsets = ({entity.offsets for entity in entities} for entities in (here, there))
    gold, found = annotated_only(other, here, other_offsets), annotated_only(doc, there, offsets)
    errors = disagreements(number, gold, found)
    return ReviewedDoc(number, doc, float(not errors), tuple(errors), unknown=0)
