"""spaCy's scorer, with the counts that its precision, recall and F1 come from.

Scores by label cannot be put together again: the F1 of all named entities is not the mean of their labels' F1, and a
label of which nothing was right does not show how much was found. With counts, any labels can be taken together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from spacy.scorer import Scorer
from spacy.training import Example

from .scores import COUNTS_KEY


class CountingScorer(Scorer):
    """Adds `ents_counts` to what spaCy's scorer returns: label -> tp, fp, fn."""

    def score(self, examples: Iterable[Example], *, per_component: bool = False) -> dict[str, Any]:
        examples = list(examples)
        scores: dict[str, Any] = super().score(examples, per_component=per_component)
        return {**scores, COUNTS_KEY: count_entities(examples)}


def count_entities(examples: Iterable[Example]) -> dict[str, dict[str, int]]:
    """Entities by label, right and wrong as `spacy.scorer.get_ner_prf` tells them apart.

    Where the reference says nothing about a token, an entity found there is neither right nor wrong.
    """
    right: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    found_at_all: set[str] = set()
    for example in examples:
        if not example.reference.has_annotation("ENT_IOB"):
            continue
        found_at_all.update(ent.label_ for ent in example.predicted.ents)
        gold = {(ent.label_, ent.start, ent.end) for ent in example.reference.ents}
        for found in _known_entities(example):
            (right if found in gold else wrong)[found[0]] += 1
            gold.discard(found)
        missed.update(label for label, _, _ in gold)
    labels = sorted({*found_at_all, *missed})
    return {label: {"tp": right[label], "fp": wrong[label], "fn": missed[label]} for label in labels}


def _known_entities(example: Example) -> Iterable[tuple[str, int, int]]:
    """The entities found, over the reference's tokens, where these are annotated."""
    to_reference = example.alignment.x2y
    for ent in example.predicted.ents:
        indices = to_reference[ent.start : ent.end]
        if len(indices):
            start, end = int(indices[0]), int(indices[-1]) + 1
            if all(token.ent_iob for token in example.reference[start:end]):
                yield ent.label_, start, end
