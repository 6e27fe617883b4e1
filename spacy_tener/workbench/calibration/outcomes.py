"""What a pipeline finds in annotated texts, whether it is right, and how probable it is at any temperature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ...errors import RemedyError
from ...layers.crf import EntitySpans
from ...pipeline.decoding import Calibration, Decoding
from ...pipeline.finding import find_recogniser
from ...pipeline.scoring import missing_places, places
from ...types import BoolArray, IntArray
from .measures import Probabilities


@dataclass(frozen=True)
class Outcomes:
    """The entities that a component finds in some texts.

    label: index of each one's label. right: whether it is annotated. text: in which text it is. *Shape* of each: [n]
    counted: which of all that is found is counted; where the annotation is missing, nothing is known.
    """

    decodings: Sequence[tuple[Decoding, EntitySpans]]
    counted: BoolArray
    label: IntArray
    right: BoolArray
    text: IntArray

    def probabilities(self, calibration: Calibration) -> Probabilities:
        """*Shape* [n]"""
        found = [
            replace(decoding, calibration=calibration).probabilities_of_few(best) for decoding, best in self.decodings
        ]
        weighed: Probabilities = np.concatenate(found)[self.counted]
        return weighed


def find_outcomes(nlp: Language, name: str, examples: Sequence[Example]) -> Outcomes:
    """Read the texts as a pipeline's component `name` reads them. Nothing is counted where annotation is missing."""
    pipe = find_recogniser(nlp, name)
    with nlp.select_pipes(enable=list(nlp.pipe_names[: nlp.pipe_names.index(name)])):
        docs = list(nlp.pipe(example.predicted for example in examples))
    decodings, rows, first = [], [], 0
    for views, decoding in pipe.decodings(docs):
        if decoding is not None:
            best = decoding.best()
            decodings.append((decoding, best))
            edges = zip(best.sequence.tolist(), best.start.tolist(), best.end.tolist(), strict=True)
            spans = [(first + text, *views[text].char_span(start, end)) for text, start, end in edges]
            rows += [(*span, label) for span, label in zip(spans, best.label.tolist(), strict=True)]
        first += len(views)
    if not rows:
        raise RemedyError("The pipeline finds no entity in these texts", "Name texts with entities that it knows.")
    judges = [Judge(example.reference, doc) for example, doc in zip(examples, docs, strict=True)]
    verdicts = [judges[text](start, end, pipe.labels[label]) for text, start, end, label in rows]
    counted = np.array([verdict is not None for verdict in verdicts])
    columns = np.array(rows, dtype=np.int64)[counted]
    right = np.array([verdict for verdict in verdicts if verdict is not None], dtype=bool)
    return Outcomes(decodings, counted, columns[:, 3], right, columns[:, 0])


class Judge:
    """Whether an entity found in a text is annotated, whatever the tokens; None where its annotation is missing."""

    def __init__(self, reference: Doc, predicted: Doc) -> None:
        gold = places(reference)
        self.place = places(predicted)
        self.gold = {(int(gold[ent.start_char]), int(gold[ent.end_char]), ent.label_) for ent in reference.ents}
        self.missing = missing_places(reference, gold)

    def __call__(self, start_char: int, end_char: int, label: str) -> bool | None:
        start, end = int(self.place[start_char]), int(self.place[end_char])
        if (start, end, label) in self.gold:
            return True
        return None if self.missing[start:end].any() else False
