"""Scorers that compare entities by character offsets, so that predicted and gold tokenization can differ.

`score_char_entities` replaces spaCy's scorer if `view = "characters"`, and `score_nested_entities` scores nested
entities. Error reports and calibration use `CharComparison`.
"""

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
    """Create a scorer that compares entities by character offsets.

    Registered as `spacy_tener.char_ner_scorer.v1`. The scorer returns the same scores as `spacy.ner_scorer.v1`. An
    entity is correct if its label and its character offsets are correct. Gold entities that do not align with predicted
    tokens are included.
    """
    return score_char_entities


def score_char_entities(examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
    """Compute precision, recall and F1 of outermost entities, overall and for each label.

    examples (Iterable[Example]): The examples.
    RETURNS (Dict[str, Any]): `ents_p`, `ents_r`, `ents_f` and `ents_per_type`.
    """
    per_type: dict[str, PRFScore] = defaultdict(PRFScore)
    for example in examples:
        # As in spaCy's scorer, skip Docs without annotation. If tokens without annotation are predicted as an entity,
        # the entity is not a false positive.
        if example.reference.has_annotation("ENT_IOB"):
            _count_matches(example, per_type)
    return _summarize(per_type, "ents")


def _summarize(per_type: Mapping[str, PRFScore], prefix: str) -> dict[str, Any]:
    """Return precision, recall and F1, overall and for each label. If there are no entities, all scores are None."""
    total = PRFScore()
    for score in per_type.values():
        total += score
    names = [f"{prefix}_{name}" for name in ("p", "r", "f", "per_type")]
    if not len(total):
        return dict.fromkeys(names)
    types = {label: score.to_dict() for label, score in per_type.items()}
    return dict(zip(names, (total.precision, total.recall, total.fscore, types), strict=True))


def score_nested_entities(examples: Iterable[Example], *, spans_key: str) -> dict[str, Any]:
    """Compute precision, recall and F1 of all entities, including nested entities.

    The scores are computed overall, for each label, and for each nesting depth. An entity is correct if its offsets and
    its label are correct. The predicted depth may differ.

    examples (Iterable[Example]): The examples. Examples without the span group in the reference are skipped.
    spans_key (str): Key in `doc.spans` for all entities, including nested entities. If another component writes
        predictions to this group, for example `spancat`, its spans are scored as well.
    RETURNS (Dict[str, Any]): `spans_<key>_p`, `_r`, `_f`, `_per_type` and `_per_depth`. `_per_depth` is a list that
        begins with the outermost depth. Its elements contain `p`, `r`, `f`, and the number of gold entities as `gold`.
    """
    per_type: dict[str, PRFScore] = defaultdict(PRFScore)
    # Counts for each depth: correct predicted entities, predicted entities, found gold entities, gold entities.
    per_depth: dict[int, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for example in examples:
        if spans_key not in example.reference.spans:
            continue
        compared = CharComparison(example.reference, example.predicted, spans_key)
        predicted = read_entities(example.predicted, [spans_key])
        keys = dict.fromkeys(compared.key(entity.offsets) for entity in predicted)
        found, gold = [key for key in keys if compared.is_correct(key) is not None], list(compared.gold)
        # Precision is computed at the predicted entities' depths, and recall at the gold entities' depths.
        for side, others, column in ((found, compared.gold, 0), (gold, set(found), 2)):
            for key, depth in zip(side, nesting_depths(side), strict=True):
                per_depth[depth][column] += key in others
                per_depth[depth][column + 1] += 1
        for key in {*found, *gold}:
            score = per_type[key[2]]
            score.tp += key in compared.gold and key in keys
            score.fp += key not in compared.gold
            score.fn += key not in keys
    depths = [_depth_score(*per_depth[depth]) for depth in sorted(per_depth)]
    prefix = f"spans_{spans_key}"
    return {**_summarize(per_type, prefix), f"{prefix}_per_depth": depths or None}


def nested_score_rows(scores: Mapping[str, Any]) -> list[tuple[str, list[float], int]]:
    """Return table rows with the scores for nested entities: a row for all entities, and a row for each nesting depth.

    scores (Mapping[str, Any]): A pipeline's scores. If they do not contain scores for nested entities, there are no
        rows.
    RETURNS (list[tuple[str, list[float], int]]): Title, `[precision, recall, F1]`, and number of gold entities.
    """
    rows: list[tuple[str, list[float], int]] = []
    for name, depths in scores.items():
        if name.endswith("_per_depth") and depths:
            every = [scores[name.replace("per_depth", part)] for part in "prf"]
            rows.append(("With entities within others", every, sum(depth["gold"] for depth in depths)))
            for number, depth in enumerate(depths, start=1):
                rows.append((f"Depth {number}", [depth[part] for part in "prf"], depth["gold"]))
    return rows


def _depth_score(right: int, found: int, recalled: int, gold: int) -> dict[str, float]:
    """Return precision, recall and F1 for a nesting depth.

    right (int): Number of correct predictions at this depth.
    found (int): Number of predictions at this depth.
    recalled (int): Number of gold entities at this depth that were predicted.
    gold (int): Number of gold entities at this depth.
    """
    p, r = right / max(found, 1), recalled / max(gold, 1)
    return {"p": p, "r": r, "f": 2 * p * r / max(p + r, 1e-9), "gold": gold}


def _count_matches(example: Example, per_type: dict[str, PRFScore]) -> None:
    """Add an example's true positives, false positives and false negatives to the scores of their labels."""
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
    """Compares the entities in two Docs with the same text. The Docs can have different tokens and white space.

    Entities are compared by start, end and label. Start and end do not count white space characters. The triple is
    called the entity's *key*.

    gold (dict[EntityOffsets, EntityOffsets]): Maps each gold entity's key to its character offsets and label in the
        reference Doc.
    """

    def __init__(self, reference: Doc, predicted: Doc, spans_key: str | None = None) -> None:
        """Initialize the comparison.

        spans_key (str | None): Key in `doc.spans` for nested gold entities. If None, only `doc.ents` is compared.
        """
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
        """Return the key of an entity in the predicted Doc: its offsets without white space, and its label."""
        start, end, label = entity
        return int(self._before[start]), int(self._before[end]), label

    def is_correct(self, key: EntityOffsets) -> bool | None:
        """Return whether the reference Doc contains an entity.

        Return None if tokens in the entity have no annotation, or if the entity consists of white space.

        key (EntityOffsets): The entity's key.
        """
        if key in self.gold:
            return True
        start, end, _ = key
        return None if start >= end or self._unknown[start:end].any() else False

    def gold_offsets(self, key: EntityOffsets) -> EntityOffsets:
        """Convert an entity's key to character offsets in the reference Doc."""
        start, end, label = key
        # `_ends` counts the characters that are not white space, up to and including each character.
        first, last = np.searchsorted(self._ends, (start + 1, end)).tolist()
        return self.gold.get(key, (first, last + 1, label))


def _visible_before(doc: Doc) -> IntArray:
    """For each offset in the text, count the characters before the offset that are not white space.

    *Shape:* (characters + 1,)
    """
    text = doc.text
    marks = np.fromiter((not character.isspace() for character in text), dtype=np.int64, count=len(text))
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(marks)])


def predicted_offsets(doc: Doc) -> set[EntityOffsets]:
    """Return the character offsets and labels of the outermost entities in a Doc. Several entities can share a
    token."""
    return {entity.offsets for entity in read_entities(doc) if entity.depth == 0}
