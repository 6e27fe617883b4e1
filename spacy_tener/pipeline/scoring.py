"""Precision, recall and F1 of entities by their character offsets, for any tokens in prediction and reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from spacy.scorer import PRFScore
from spacy.tokens import Doc
from spacy.training import Example

from ..types import BoolArray, IntArray
from .entities import CHAR_OFFSETS
from .settings import CHARS_KEY


def make_char_ner_scorer() -> Callable[..., dict[str, Any]]:
    """Score entities by their offsets in the text.

    Registered as `spacy_tener.char_ner_scorer.v1`. The scores and their names are those of `spacy.ner_scorer.v1`, but
    an entity is correct if its character offsets and label are. Tokens are ignored, so that gold entities that do not
    align with predicted tokens count.
    """
    return score_char_entities


def score_char_entities(
    examples: Iterable[Example], *, chars_key: str | None = CHARS_KEY, **kwargs: Any
) -> dict[str, Any]:
    """Compute precision, recall and F1, overall and per type.

    examples (Iterable[Example]): The examples.
    chars_key (Optional[str]): Key of `doc.spans` for the group with exact character offsets. It is scored instead of
        `doc.ents`, which a later component may have changed. Docs without it are scored by `doc.ents`.
    RETURNS (Dict[str, Any]): `ents_p`, `ents_r`, `ents_f` and `ents_per_type`.
    """
    per_type: dict[str, PRFScore] = defaultdict(PRFScore)
    for example in examples:
        # As in spaCy's scorer: Docs without annotation are skipped, as are wrong predictions on tokens without it.
        if example.reference.has_annotation("ENT_IOB"):
            _count(example, chars_key, per_type)
    total = PRFScore()
    for score in per_type.values():
        total += score
    if not len(total):
        return dict.fromkeys(("ents_p", "ents_r", "ents_f", "ents_per_type"))
    return {
        "ents_p": total.precision,
        "ents_r": total.recall,
        "ents_f": total.fscore,
        "ents_per_type": {label: score.to_dict() for label, score in per_type.items()},
    }


def _count(example: Example, chars_key: str | None, per_type: dict[str, PRFScore]) -> None:
    reference, predicted = example.reference, example.predicted
    place, found_place = places(reference), places(predicted)
    gold = {(int(place[ent.start_char]), int(place[ent.end_char]), ent.label_) for ent in reference.ents}
    missing = missing_places(reference, place)
    for start_char, end_char, label in set(_predicted(predicted, chars_key)):
        start, end = int(found_place[start_char]), int(found_place[end_char])
        score = per_type[label]
        if (start, end, label) in gold:
            score.tp += 1
            gold.remove((start, end, label))
        elif start < end and not missing[start:end].any():
            score.fp += 1
    for *_, label in gold:
        per_type[label].fn += 1


def places(doc: Doc) -> IntArray:
    """Return the number of non-space characters before each offset of the text: white space may differ."""
    text = doc.text
    marks = np.fromiter((not character.isspace() for character in text), dtype=np.int64, count=len(text))
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(marks)])


def missing_places(reference: Doc, place: IntArray) -> BoolArray:
    """Return a mask of the non-space characters that have no annotation."""
    missing = np.zeros(int(place[-1]), dtype=bool)
    for token in reference:
        if token.ent_iob == 0:
            missing[place[token.idx] : place[token.idx + len(token)]] = True
    return missing


def _predicted(doc: Doc, chars_key: str | None) -> Iterator[tuple[int, int, str]]:
    group = doc.spans[chars_key] if chars_key is not None and chars_key in doc.spans else None
    offsets = None if group is None else group.attrs.get(CHAR_OFFSETS)
    # After manual edits of a group, its offsets do not match its spans.
    if group is not None and offsets is not None and len(offsets) == len(group):
        for span, (start, end) in zip(group, offsets, strict=True):
            yield start, end, span.label_
    else:
        for ent in doc.ents:
            yield ent.start_char, ent.end_char, ent.label_
