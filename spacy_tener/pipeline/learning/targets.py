"""Targets for training: an Example's gold annotation, converted to tags for the predicted Doc."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from spacy.attrs import ORTH, SPACY
from spacy.errors import Errors
from spacy.strings import get_string_id
from spacy.tokens import Doc, Span
from spacy.training import Example

from ...tagging import TagLayout
from ...types import BoolArray, IntArray
from ..masks import possible_tags
from ..nesting import split_reference
from ..settings import NERSettings
from ..tags import UNKNOWN, LabelIndex, Mask, encode_units, trim_space
from ..units import (
    BEGIN,
    INSIDE,
    MISSING,
    NEXT_IN_WORD,
    OUTSIDE,
    PREVIOUS_IN_WORD,
    CharacterView,
    DocView,
    TokenView,
    Units,
    letter_neighbours,
    view_of,
)
from ..windows import Window

# Key in the reference Doc's `user_data` for the Doc's weight in the loss. The default is 1.
WEIGHT = "spacy_tener.weight"

# Key in the reference Doc's `user_data` for the list of labels that the Doc is annotated for. The default is all
# labels. If the list is set, tokens outside gold entities may still belong to an entity with another label.
ANNOTATED_LABELS = "spacy_tener.labels"

_IOB = {"B": BEGIN, "I": INSIDE, "L": INSIDE, "U": BEGIN, "O": OUTSIDE, "-": MISSING}


@dataclass(frozen=True)
class IncorrectSpan:
    """A negative example: a span that is known not to be an entity with this label.

    start (int): Index of the first token or character.
    end (int): Index after the last token or character.
    label (int): Index of the label.
    """

    start: int
    end: int
    label: int


@dataclass(frozen=True)
class Target:
    """The gold annotation of a text at one nesting level, see `nesting.py`.

    The units are the predicted Doc's tokens or characters.

    view (DocView): The predicted Doc, as a sequence of units.
    units (Units): The unit attributes, with gold entities.
    tags (IntArray): Gold tags, or `UNKNOWN` if the annotation is missing. *Shape:* (units,)
    incorrect (list[IncorrectSpan]): Negative examples.
    weight (float): The text's weight in the loss.
    possible (Mask | None): Mask of the allowed tags, which include all gold tags. None allows all tags. *Shape:*
        (units, tags)
    unannotated_labels (BoolArray | None): Mask of the labels that the text is not annotated for. None if the text is
        annotated for all labels. *Shape:* (labels,)
    open_units (BoolArray | None): Mask of the units outside gold entities if there are unannotated labels. These units
        may belong to entities with an unannotated label, so their tags are `UNKNOWN`. *Shape:* (units,)
    """

    view: DocView
    units: Units
    tags: IntArray
    incorrect: list[IncorrectSpan]
    weight: float = 1.0
    possible: Mask | None = None
    unannotated_labels: BoolArray | None = None
    open_units: BoolArray | None = None

    @property
    def has_loss(self) -> bool:
        """Whether the target contributes to the loss. Its weight must be above 0, and it must have gold tags or
        negative examples."""
        is_annotated = bool((self.tags != UNKNOWN).any()) or (
            self.open_units is not None and bool(self.open_units.any())
        )
        return self.weight > 0.0 and (bool(self.incorrect) or is_annotated)

    def agreeing(self, layout: TagLayout) -> Mask | None:
        """Return a mask of the tags that agree with the annotation if a text is annotated for some labels only.

        Outside gold entities, O and the tags of unannotated labels are allowed. Return None if there are no unannotated
        labels. *Shape:* (units, tags)
        """
        if self.unannotated_labels is None or self.open_units is None:
            return None
        is_allowed = np.ones(layout.n_tags, dtype=bool)
        for block in (layout.begin, layout.single, layout.end, layout.inside):
            is_allowed[block] = self.unannotated_labels
        agreeing = np.ones((len(self.tags), layout.n_tags), dtype=bool)
        agreeing[self.open_units] = is_allowed
        return agreeing

    def in_window(self, window: Window) -> Target:
        """Return the target for a window. Windows overlap, but each gold entity is used in a single window.

        An entity is used in the window that keeps the prediction for its first unit (token or character). In other
        windows, its tags are `UNKNOWN`. If the entity continues after the window, its tags are also `UNKNOWN`.
        """
        if len(window) == len(self.tags):
            return self
        position = np.arange(window.start, window.end)
        # For each unit, the index at which its entity starts. A unit outside entities has its own index.
        starts = np.where(self.units.iob == INSIDE, 0, np.arange(len(self.tags)))
        entity_start = np.maximum.accumulate(starts)[window.start : window.end]
        is_kept = (entity_start >= window.keep_start) & (entity_start < window.keep_end)
        # If an entity continues after the window, its tags are unknown.
        if window.end < len(self.tags) and self.units.iob[window.end] == INSIDE:
            is_kept &= entity_start != entity_start[-1]
        tags = np.where(is_kept, self.tags[position], UNKNOWN)
        incorrect = [
            IncorrectSpan(span.start - window.start, span.end - window.start, span.label)
            for span in self.incorrect
            if window.keep_start <= span.start < window.keep_end and span.end <= window.end
        ]
        units = Units(*(column[position] for column in vars(self.units).values()))
        possible = None if self.possible is None else self.possible[window.start : window.end]
        open_units = None if self.open_units is None else self.open_units[position] & is_kept
        return Target(self.view, units, tags, incorrect, self.weight, possible, self.unannotated_labels, open_units)


def make_targets(
    examples: Sequence[Example], labels: LabelIndex, settings: NERSettings, depth: int = 1
) -> list[list[Target]]:
    """Convert the gold annotation of examples to targets. Each example has one target for each nesting level."""
    targets = []
    for example in examples:
        view = view_of(example.predicted, settings.view)
        parts = [
            Example(example.predicted, reference) if depth > 1 else example
            for reference in split_reference(example.reference, settings.spans_key, depth)
        ]
        targets.append([make_target(part, view, labels, settings.incorrect_spans_key) for part in parts])
    return targets


def make_target(example: Example, view: DocView, labels: LabelIndex, incorrect_spans_key: str | None) -> Target:
    """Convert the gold annotation of an example to a target. Raise an error if the annotation contains a label that the
    component does not have.

    view (DocView): The predicted Doc, as a sequence of tokens or characters.
    incorrect_spans_key (str | None): Key in `doc.spans` for negative examples.
    """
    units = trim_space(_gold_units(example, view))
    _check_labels(example, units, labels)
    groups, key = example.reference.spans, incorrect_spans_key
    incorrect = list(groups[key]) if key is not None and key in groups else []
    tags, possible = encode_units(units, labels), possible_tags(units, labels)
    if possible is not None:
        annotated = np.flatnonzero(tags != UNKNOWN)
        possible[annotated, tags[annotated]] = True
    unannotated_labels, open_units = _unannotated_labels(example.reference, labels), None
    if unannotated_labels is not None:
        open_units = tags == labels.layout.outside
        tags = np.where(open_units, UNKNOWN, tags)
    return Target(
        view=view,
        units=units,
        tags=tags,
        incorrect=_align_incorrect(example, view, incorrect, labels),
        weight=_weight(example.reference),
        possible=possible,
        unannotated_labels=unannotated_labels,
        open_units=open_units,
    )


def _unannotated_labels(reference: Doc, labels: LabelIndex) -> BoolArray | None:
    """Return a mask of the labels that a Doc is not annotated for. Return None if the Doc is annotated for all labels.

    *Shape:* (labels,)
    """
    names = reference.user_data.get(ANNOTATED_LABELS)
    if names is None:
        return None
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"doc.user_data[{ANNOTATED_LABELS!r}] must be a list of labels, but is {names!r}.")
    annotated = {get_string_id(name) for name in names}
    unannotated_labels = np.array([label not in annotated for label in labels.hashes], dtype=bool)
    return unannotated_labels if unannotated_labels.any() else None


def labels_with_exceptions(targets: Iterable[Target], labels: LabelIndex, unit_type: int) -> list[int]:
    """Return the indices of the labels that need an exception from a decoding rule, because gold entities break the
    rule.

    unit_type (int): `LINE_BREAK` for the rule that entities do not contain line breaks, or `ORNAMENT` for the rule that
        entities do not begin or end with an ornament, such as an emoji.
    """
    layout, found = labels.layout, set[int]()
    for target in targets:
        rows = np.flatnonzero((target.units.unit_type == unit_type) & (target.tags != UNKNOWN))
        tags = target.tags[rows]
        tags = tags[~labels.tags_by_unit_type[unit_type, tags]]
        # Convert tags to label indices. The tag ids are blocks of B, S, E and I tags with one tag per label. O is
        # between B and S.
        found.update(((tags - (tags > layout.outside)) % max(layout.n_labels, 1)).tolist())
    return sorted(found)


def count_latin_edges(targets: Iterable[Target], layout: TagLayout) -> IntArray:
    """Count how many gold entity boundaries are inside a Latin word, and how many are at the start or end of one.

    RETURNS (IntArray): Both counts for each label. *Shape:* (labels, 2)
    """
    counts = np.zeros((layout.n_labels, 2), dtype=np.int64)
    for target in targets:
        neighbours = letter_neighbours([target.view])
        if neighbours is None:
            continue
        # If the previous letter is in the same word, an entity that begins here splits the word. The same is true for
        # the next letter and an entity that ends here.
        begins, ends = (layout.begin, layout.single), (layout.end, layout.single)
        for flag, blocks in ((PREVIOUS_IN_WORD, begins), (NEXT_IN_WORD, ends)):
            for block in blocks:
                rows = np.flatnonzero((target.tags >= block.start) & (target.tags < block.stop) & (neighbours > 0))
                np.add.at(counts, (target.tags[rows] - block.start, (neighbours[rows] & flag == 0).astype(int)), 1)
    return counts


def _weight(reference: Doc) -> float:
    """Return a Doc's weight in the loss. Raise an error if the weight is not valid."""
    weight = reference.user_data.get(WEIGHT, 1.0)
    if not isinstance(weight, (int, float)) or not 0.0 <= weight < np.inf:
        raise ValueError(f"doc.user_data[{WEIGHT!r}] must be a number of 0 or more, but is {weight!r}.")
    return float(weight)


def _gold_units(example: Example, view: DocView) -> Units:
    """Return the attributes of the predicted tokens or characters, with the reference Doc's gold entities."""
    if isinstance(view, CharacterView):
        if example.reference.text == view.text:
            # The texts are identical, so entities need not be aligned to the predicted tokens.
            return CharacterView(example.reference).units()
        return view.to_characters(_aligned_units(example))
    if _same_tokens(example):
        return TokenView(example.reference).units()
    return _aligned_units(example)


def _same_tokens(example: Example) -> bool:
    """Return whether the predicted and the reference Doc have the same tokens and spaces."""
    predicted, reference = example.predicted, example.reference
    return len(predicted) == len(reference) and np.array_equal(
        predicted.to_array([ORTH, SPACY]), reference.to_array([ORTH, SPACY])
    )


def _aligned_units(example: Example) -> Units:
    """Return the attributes of the predicted tokens, with gold entities that spaCy aligned to the tokens.

    Tokens in entities that cannot be aligned have missing annotation.
    """
    aligned = [tag or "-" for tag in example.get_aligned_ner()]
    strings = example.predicted.vocab.strings
    predicted = TokenView(example.predicted).units()
    return Units(
        unit_type=predicted.unit_type,
        iob=np.array([_IOB[tag[0]] for tag in aligned], dtype=np.int64),
        label=np.array([strings.add(tag[2:]) if tag[2:] else 0 for tag in aligned], dtype=np.uint64),
        sentence_start=predicted.sentence_start,
    )


def _check_labels(example: Example, units: Units, labels: LabelIndex) -> None:
    """Raise an error if the gold annotation contains a label that the component does not have."""
    unknown = set(units.label.tolist()).difference(labels.hashes, [0])
    if unknown:
        names = ", ".join(sorted(repr(example.reference.vocab.strings[label]) for label in unknown))
        raise ValueError(
            f"The training data contains the entity label {names}, which the component does not have. Call add_label() "
            "for it before training, or nlp.initialize() with data (or a labels file) that contains every label. "
            f"Text: {example.reference.text[:60]!r}"
        )


def _align_incorrect(example: Example, view: DocView, spans: list[Span], labels: LabelIndex) -> list[IncorrectSpan]:
    """Convert negative examples to spans of predicted tokens or characters.

    Raise an error if a negative example is also a gold entity.
    """
    if not spans:
        return []
    gold = {(span.start_char, span.end_char, span.label) for span in example.reference.ents}
    for span in spans:
        if (span.start_char, span.end_char, span.label) in gold:
            raise ValueError(Errors.E868.format(span=(span.start_char, span.end_char, span.label_)))
    by_characters = isinstance(view, CharacterView)
    if not (by_characters and example.reference.text == view.doc.text):
        spans = example.get_aligned_spans_y2x(spans, allow_overlap=True)
    edges = [
        (span.start_char, span.end_char, span.label) if by_characters else (span.start, span.end, span.label)
        for span in spans
    ]
    index = {label: i for i, label in enumerate(labels.hashes)}
    return [IncorrectSpan(start, end, index[label]) for start, end, label in edges if label in index]
