"""Precision, recall and F1 of entities by their character offsets, for any tokens in prediction and reference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from spacy.scorer import PRFScore
from spacy.tokens import Doc
from spacy.training import Example

from ..types import EntityOffsets, IntArray
from .entities import offsets_of, read_entities
from .nesting import all_entities, nesting_depths


def make_char_ner_scorer() -> Callable[..., dict[str, Any]]:
    """Score entities by their offsets in the text.

    Registered as `spacy_tener.char_ner_scorer.v1`. The scores and their names are those of `spacy.ner_scorer.v1`, but
    an entity is correct if its character offsets and label are. Tokens are ignored, so that gold entities that do not
    align with predicted tokens count.
    """
    return score_char_entities


def score_char_entities(examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
    """Compute precision, recall and F1 of the outermost entities, overall and per type.

    examples (Iterable[Example]): The examples.
    RETURNS (Dict[str, Any]): `ents_p`, `ents_r`, `ents_f` and `ents_per_type`.
    """
    per_type: dict[str, PRFScore] = defaultdict(PRFScore)
    for example in examples:
        # As in spaCy's scorer: Docs without annotation are skipped, as are wrong predictions on tokens without it.
        if example.reference.has_annotation("ENT_IOB"):
            _count_matches(example, per_type)
    return _summarize(per_type, "ents")


def _summarize(per_type: Mapping[str, PRFScore], prefix: str) -> dict[str, Any]:
    """Return precision, recall and F1, overall and per type; None for each if there is no entity."""
    total = PRFScore()
    for score in per_type.values():
        total += score
    names = [f"{prefix}_{name}" for name in ("p", "r", "f", "per_type")]
    if not len(total):
        return dict.fromkeys(names)
    types = {label: score.to_dict() for label, score in per_type.items()}
    return dict(zip(names, (total.precision, total.recall, total.fscore, types), strict=True))


def score_nested_entities(examples: Iterable[Example], *, spans_key: str) -> dict[str, Any]:
    """Compute precision, recall and F1 of nested entities: overall, per type, and per nesting depth.

    An entity is correct if its offsets and label are, at whatever depth it was found.

    examples (Iterable[Example]): The examples. Examples whose reference lacks the group are skipped.
    spans_key (str): The group of `doc.spans` with all entities of the reference. A group of the prediction with this
        key that another component wrote, for example a `spancat`, is scored as well.
    RETURNS (Dict[str, Any]): `spans_<key>_p`, `_r`, `_f`, `_per_type`, and `_per_depth`, a list of `p`, `r`, `f` and
        the number of annotated entities, `gold`, the outermost first.
    """
    per_type: dict[str, PRFScore] = defaultdict(PRFScore)
    per_depth: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for example in examples:
        if spans_key not in example.reference.spans:
            continue
        compared = CharComparison(example.reference, example.predicted, spans_key)
        predicted = read_entities(example.predicted, [spans_key])
        keys = dict.fromkeys(compared.key(entity.offsets) for entity in predicted)
        found, gold = [key for key in keys if compared.is_correct(key) is not None], list(compared.gold)
        for side, others, right in ((found, compared.gold, 0), (gold, set(found), 2)):
            for key, depth in zip(side, nesting_depths(side), strict=True):
                per_depth[depth][right] += key in others
                per_depth[depth][right + 1] += 1
        for key in {*found, *gold}:
            score = per_type[key[2]]
            score.tp += key in compared.gold and key in keys
            score.fp += key not in compared.gold
            score.fn += key not in keys
    depths = [_depth_score(*per_depth[depth]) for depth in sorted(per_depth)]
    prefix = f"spans_{spans_key}"
    return {**_summarize(per_type, prefix), f"{prefix}_per_depth": depths or None}


def nested_score_rows(scores: Mapping[str, Any]) -> list[tuple[str, list[float], int]]:
    """Return rows of what `score_nested_entities` returned, if `scores` have it: a title, precision, recall and F1, and
    the number of annotated entities, of all entities and of each depth."""
    rows: list[tuple[str, list[float], int]] = []
    for name, depths in scores.items():
        if name.endswith("_per_depth") and depths:
            every = [scores[name.replace("per_depth", part)] for part in "prf"]
            rows.append(("With entities within others", every, sum(depth["gold"] for depth in depths)))
            for number, depth in enumerate(depths, start=1):
                rows.append((f"Depth {number}", [depth[part] for part in "prf"], depth["gold"]))
    return rows


def _depth_score(right: int, found: int, recalled: int, gold: int) -> dict[str, float]:
    """Return precision of the entities found at a depth, recall of those annotated there, and F1."""
    p, r = right / max(found, 1), recalled / max(gold, 1)
    return {"p": p, "r": r, "f": 2 * p * r / max(p + r, 1e-9), "gold": gold}


def _count_matches(example: Example, per_type: dict[str, PRFScore]) -> None:
    compared = CharComparison(example.reference, example.predicted)
    missed = set(compared.gold)
    for entity in predicted_offsets(example.predicted):
        key, score = compared.key(entity), per_type[entity[2]]
        is_correct = compared.is_correct(key)
        if is_correct:
            score.tp += 1
            missed.discard(key)
        elif is_correct is not None:
            score.fp += 1
    for *_, label in missed:
        per_type[label].fn += 1


class CharComparison:
    """Comparison of two Docs of one text, whose tokens and white space may differ, by their other characters.

    gold: The key of each entity of the reference, which is start, end and label in characters that are no white space,
        and its offsets there.
    """

    def __init__(self, reference: Doc, predicted: Doc, spans_key: str | None = None) -> None:
        """Compare. spans_key: The group of the reference with entities within those of `doc.ents`, if these count."""
        before = _visible_before(reference)
        self._before = _visible_before(predicted)
        gold = map(offsets_of, all_entities(reference, spans_key))
        self.gold = {(int(before[start]), int(before[end]), label): (start, end, label) for start, end, label in gold}
        self._unknown = np.zeros(int(before[-1]), dtype=bool)
        for token in reference:
            if token.ent_iob == 0:
                self._unknown[before[token.idx] : before[token.idx + len(token)]] = True
        self._ends = before[1:]

    def key(self, entity: EntityOffsets) -> EntityOffsets:
        """Return the key of an entity of the predicted Doc."""
        start, end, label = entity
        return int(self._before[start]), int(self._before[end]), label

    def is_correct(self, key: EntityOffsets) -> bool | None:
        """Return whether an entity is annotated; None where annotation is missing, and for white space alone."""
        if key in self.gold:
            return True
        start, end, _ = key
        return None if start >= end or self._unknown[start:end].any() else False

    def gold_offsets(self, key: EntityOffsets) -> EntityOffsets:
        """Return the offsets of a key in the reference: of an entity there, or of the characters."""
        start, end, label = key
        first, last = np.searchsorted(self._ends, (start + 1, end)).tolist()
        return self.gold.get(key, (first, last + 1, label))


def _visible_before(doc: Doc) -> IntArray:
    """Return the number of characters before each offset of the text that are no white space."""
    text = doc.text
    marks = np.fromiter((not character.isspace() for character in text), dtype=np.int64, count=len(text))
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(marks)])


def predicted_offsets(doc: Doc) -> set[EntityOffsets]:
    """Return the offsets and labels of the outermost entities of a Doc, also of those that share a token."""
    return {entity.offsets for entity in read_entities(doc) if entity.depth == 0}
