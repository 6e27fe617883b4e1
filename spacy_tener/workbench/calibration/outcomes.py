"""Entities that a pipeline finds in annotated texts: right or wrong, and their probability at any temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from spacy.language import Language
from spacy.training import Example

from ...crf.marginals import EntitySpans
from ...errors import RemedyError
from ...pipeline.decoding import Decoding, Probabilities
from ...pipeline.finding import find_recogniser
from ...pipeline.scoring import CharComparison
from ...types import BoolArray, IntArray

FEWEST = 10
"""Least number of right entities, and least number of wrong ones, to fit a temperature to."""


@dataclass(frozen=True)
class Outcomes:
    """The entities that a component finds in some texts.

    decodings: The decoded batches of texts, each with the entities found.
    counted: Mask of all entities found: false if annotation is missing there. *Shape* [N]
    label: Index of the label of each counted entity. *Shape* [n]
    right: Mask of the counted entities that are annotated. *Shape* [n]
    text: Index of the text of each counted entity. *Shape* [n]
    """

    decodings: Sequence[tuple[Decoding, EntitySpans]]
    counted: BoolArray
    label: IntArray
    right: BoolArray
    text: IntArray

    def probabilities(self, temperature: float = 1.0) -> Probabilities:
        """Return the probability of each counted entity at a temperature. *Shape* [n]"""
        found = [replace(own, temperature=temperature).probabilities_of_few(best) for own, best in self.decodings]
        counted: Probabilities = np.concatenate(found)[self.counted]
        return counted


def find_outcomes(nlp: Language, name: str, examples: Sequence[Example], source: Path) -> Outcomes:
    """Find entities with the pipeline's component `name`, and compare them with the annotation.

    source: The file of the examples, for messages.
    """
    pipe = find_recogniser(nlp, name)
    _check_labels({span.label_ for example in examples for span in example.reference.ents}, pipe.labels, name, source)
    with nlp.select_pipes(enable=list(nlp.pipe_names[: nlp.pipe_names.index(name)])):
        docs = list(nlp.pipe(example.predicted for example in examples))
    compared = [CharComparison(example.reference, doc) for example, doc in zip(examples, docs, strict=True)]
    decodings, rows, n_read = [], [], 0
    for views, decoding in pipe._decodings(docs):
        best = decoding.best()
        decodings.append((decoding, best))
        for text, start, end, label in zip(*(column.tolist() for column in best), strict=True):
            comparison = compared[n_read + text]
            found = comparison.key((*views[text].char_span(start, end), pipe.labels[label]))
            rows.append((n_read + text, label, comparison.is_right(found)))
        n_read += len(views)
    if not rows:
        raise RemedyError(f"{source}: the pipeline finds no entity", "Give texts with entities of its labels.")
    text, label, verdicts = zip(*rows, strict=True)
    counted = np.array([verdict is not None for verdict in verdicts])
    right = np.array([verdict for verdict in verdicts if verdict is not None], dtype=bool)
    return Outcomes(decodings, counted, np.array(label)[counted], right, np.array(text)[counted])


def check_enough(outcomes: Outcomes, source: Path) -> None:
    """Refuse too few outcomes to fit a temperature to."""
    right = int(outcomes.right.sum())
    wrong = outcomes.right.size - right
    if min(right, wrong) < FEWEST:
        raise RemedyError(
            f"{source}: too few entities to fit a temperature to: {right} right, {wrong} wrong",
            f"Annotate more texts: at least {FEWEST} right and {FEWEST} wrong entities are needed.",
        )


def _check_labels(annotated: set[str], known: Sequence[str], name: str, source: Path) -> None:
    if not annotated:
        raise RemedyError(f"{source}: no entities are annotated", "Give texts with annotated entities.")
    if not annotated & set(known):
        raise RemedyError(
            f"{source}: its labels ({', '.join(sorted(annotated))}) are not those of '{name}' ({', '.join(known)})",
            "Give texts annotated with the labels of the pipeline.",
        )
