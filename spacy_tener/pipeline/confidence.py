"""How sure the component is: probabilities of entities and of whole readings, as methods for single calls."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

from ..batching.sequences import ranges
from ..crf.marginals import EntitySpans
from ..models.tagger import TaggerModel, path_scorer
from .decoding import Calibration, Decoding, Probabilities, joined
from .entities import FoundEntity
from .learning.targets import make_target
from .settings import NERSettings
from .tags import LabelIndex, agreeing_tags, decodable_tags
from .units import DocView, view_of
from .windows import DocReader, check_shared

Answer = TypeVar("Answer")
Views = Sequence[DocView]
Ask = Callable[[Views, Decoding], Iterable[Answer]]
"""Asks something about a group of Docs; one answer for each."""


@dataclass(frozen=True)
class Reading:
    """One of the k best readings of a text, and its entities. Their own probabilities are those in all readings.

    log_probability: What is left of the probability of a long text's reading, which is 0 as a number.
    """

    probability: float
    entities: list[FoundEntity]
    log_probability: float


@dataclass(frozen=True)
class Marginals:
    """What the model believes of a text, all readings taken together.

    entities: Spans that may be entities, whether they exclude each other or not.
    outside: How probable it is that each character of `doc.text` lies in no entity. *Shape* [n_characters]
    """

    entities: list[FoundEntity]
    outside: Probabilities


class ConfidentPipe(TrainablePipe):
    """A component with a CRF, and what that says about entities and whole readings of a text.

    All methods here read a text as if it had no entities yet: `doc.ents` is neither used nor changed. What they return
    is exact, over Docs of any length, and calibrated where `spacy tener calibrate` was run.
    """

    vocab: Vocab
    model: TaggerModel
    name: str
    cfg: dict[str, Any]
    _process: int
    """The process that made the component."""

    @property
    def settings(self) -> NERSettings:
        """How Docs are read and entities written, as `cfg` has it: changed there, it is saved with the component."""
        return NERSettings.of(self.cfg)

    @property
    def labels(self) -> tuple[str, ...]:
        """The entity types that the component can predict."""
        return tuple(self.cfg["labels"])

    @property
    def _label_index(self) -> LabelIndex:
        return LabelIndex([self.vocab.strings[label] for label in self.cfg["labels"]])

    def scored(self, docs: Iterable[Doc]) -> list[list[FoundEntity]]:
        """The entities of each Doc with their probabilities.

        docs (Iterable[Doc]): The Docs. Where the model listens to a shared component, that one has processed them.
        RETURNS (List[List[FoundEntity]]): For each Doc, what the component finds in it.
        """

        def ask(views: Views, decoding: Decoding) -> Iterable[list[FoundEntity]]:
            best = decoding.best()
            found = self._entities(views, best, decoding.probabilities_of_few(best))
            return [found[part] for part in decoding.per_text(best)]

        return self._ask(docs, ask, list)

    def probabilities(self, doc: Doc, spans: Iterable[Span | tuple[int, int, str]]) -> list[float]:
        """How probable each of any spans is as an entity of its label.

        doc (Doc): The Doc.
        spans (Iterable[Union[Span, Tuple[int, int, str]]]): Spans of the Doc, or their start and end in characters of
            its text, and their label.
        RETURNS (List[float]): The probabilities. That of a span which the model cannot find is 0: one that is not
            made of whole tokens in the view `tokens`, or whose label is not one of the model's.
        """
        wanted = [(s.start_char, s.end_char, s.label_) if isinstance(s, Span) else s for s in spans]
        for start, end, _ in wanted:
            if not 0 <= start < end <= len(doc.text):
                raise ValueError(f"The span {start, end} does not lie in the Doc's {len(doc.text)} characters.")

        def ask(views: Views, decoding: Decoding) -> Iterable[list[float]]:
            found = [self._columns(views[0], *span) for span in wanted]
            weighed = np.zeros(len(wanted))
            weighed[[columns is not None for columns in found]] = decoding.probabilities(
                EntitySpans(*np.array([row for row in found if row], dtype=np.int64).reshape(-1, 4).T)
            )
            values: list[float] = weighed.tolist()
            return [values]

        answers: list[list[float]] = self._ask([doc], ask, list)
        return answers[0]

    def compared(self, docs: Iterable[Doc], spans: Sequence[tuple[int, int, str]]) -> Probabilities:
        """How probable the same spans are in each of several Docs.

        docs (Iterable[Doc]): The Docs, of as many tokens or characters each.
        spans (Sequence[Tuple[int, int, str]]): Start and end in the units of the view, and the label.
        RETURNS (ndarray): *Shape* [docs, spans]
        """
        labels = [self.labels.index(label) for _, _, label in spans]
        rows = np.array([(start, end) for start, end, _ in spans], dtype=np.int64).reshape(-1, 2)

        def ask(views: Views, decoding: Decoding) -> Iterable[Probabilities]:
            columns = [np.tile(column, len(views)) for column in (*rows.T, np.array(labels, dtype=np.int64))]
            texts = np.repeat(np.arange(len(views)), len(spans))
            return decoding.probabilities(EntitySpans(texts, *columns)).reshape(len(views), len(spans))

        return np.array(self._ask(docs, ask, lambda: np.zeros(len(spans)))).reshape(-1, len(spans))

    def readings(self, docs: Iterable[Doc], k: int = 5) -> list[list[Reading]]:
        """The k most probable readings of each Doc as a whole, best first; fewer where there are fewer.

        docs (Iterable[Doc]): The Docs.
        k (int): How many.
        RETURNS (List[List[Reading]]): For each Doc, its readings. An empty Doc has one, of no entities.
        """

        def ask(views: Views, decoding: Decoding) -> Iterable[list[Reading]]:
            found = decoding.kbest(k)
            spans = joined([entities for readings in found for _, entities in readings])
            entities = iter(self._entities(views, spans, decoding.probabilities(spans)))
            return [
                [Reading(float(np.exp(log_p)), [next(entities) for _ in each.label], log_p) for log_p, each in readings]
                for readings in found
            ]

        return self._ask(docs, ask, lambda: [Reading(1.0, [], 0.0)])

    def rivals(self, docs: Iterable[Doc], n: int = 3, minimum: float = 0.01) -> list[list[list[FoundEntity]]]:
        """What each entity of each Doc might be instead: the other spans that share characters with it, be it with
        other edges, another label or both.

        docs (Iterable[Doc]): The Docs.
        n (int): Most rivals of an entity.
        minimum (float): The least probability of a rival, above 0. All that are as probable are compared.
        RETURNS (List[List[List[FoundEntity]]]): For each entity that `scored` returns, its rivals, strongest first.
        """
        if not 0.0 < minimum <= 1.0:
            raise ValueError(f"The least probability of a rival must be above 0 and at most 1, not {minimum}.")

        def ask(views: Views, decoding: Decoding) -> Iterable[list[list[FoundEntity]]]:
            best = decoding.best()
            owner, spans, probability = decoding.rivals(best, n, minimum)
            found = self._entities(views, spans, probability)
            ends = np.searchsorted(owner, np.arange(best.label.size), side="right").tolist()
            by_entity = [found[start:end] for start, end in zip([0, *ends], ends, strict=False)]
            return [by_entity[part] for part in decoding.per_text(best)]

        return self._ask(docs, ask, list)

    def marginals(self, docs: Iterable[Doc], minimum: float = 0.05) -> list[Marginals]:
        """The belief about each Doc, for whom the best reading is too little. Entities that Docs have already stay.

        docs (Iterable[Doc]): The Docs.
        minimum (float): The least probability of an entity, above 0.
        RETURNS (List[Marginals]): For each Doc, all its possible entities, and its characters in none.
        """

        def ask(views: Views, decoding: Decoding) -> Iterator[Marginals]:
            spans, probability = decoding.candidates(minimum)
            found: list[list[FoundEntity]] = [[] for _ in views]
            rows = zip(
                spans.sequence.tolist(), probability.tolist(), self._entities(views, spans, probability), strict=True
            )
            for text, weight, entity in rows:
                if weight >= minimum:
                    found[text].append(entity)
            for view, entities, outside in zip(views, found, decoding.outside(), strict=True):
                yield Marginals(entities, _by_character(view, outside))

        return self._ask(docs, ask, lambda: Marginals([], np.empty(0)), annotated=True)

    def likelihood(self, examples: Iterable[Example]) -> list[float]:
        """How probable the gold annotation of each example is as a whole: all readings that agree with what is known.

        examples (Iterable[Example]): The examples, with no label that the component does not have.
        RETURNS (List[float]): 0 where the model has no such reading, as of an entity across a known sentence start.
        """
        settings, index = self.settings, self._label_index
        targets = [make_target(each, settings.view, index, settings.incorrect_spans_key) for each in examples]
        rest = iter(targets)

        def ask(views: Views, decoding: Decoding) -> Iterable[float]:
            group = list(itertools.islice(rest, len(views)))
            return decoding.share([agreeing_tags(each.tags, None, index.layout) for each in group])

        return self._ask([target.view.doc for target in targets], ask, lambda: 1.0)

    def entropy(self, docs: Iterable[Doc]) -> list[float]:
        """How undecided the model is about each Doc as a whole: the entropy of all its readings, in nats.

        docs (Iterable[Doc]): The Docs.
        RETURNS (List[float]): 0 where only one reading is possible, as of an empty Doc.
        """
        return self._ask(docs, lambda views, decoding: decoding.entropy(), float)

    def _ask(
        self, docs: Iterable[Doc], ask: Ask[Answer], nothing: Callable[[], Answer], *, annotated: bool = False
    ) -> list[Answer]:
        """The answers for all Docs, in groups of bounded size.

        nothing: the answer for an empty Doc.
        annotated: whether the entities that the Docs have stay as they are. Otherwise they are not looked at.
        """
        return [
            answer
            for views, decoding in self.decodings(docs, annotated=annotated)
            for answer in (ask(views, decoding) if decoding is not None else [nothing() for _ in views])
        ]

    def decodings(self, docs: Iterable[Doc], *, annotated: bool = False) -> Iterator[tuple[Views, Decoding | None]]:
        """The Docs in groups, and what the CRF makes of them; None for Docs that are all empty.

        annotated: whether the entities that the Docs have stay as they are. Otherwise they are not looked at.
        """
        self._check_process()
        settings, index, calibration = self.settings, self._label_index, Calibration.of(self.cfg)
        views: list[DocView] = [view_of(doc, settings.view) for doc in docs]
        if not any(len(view) for view in views):
            yield views, None
            return
        # Before the emissions: a GPU that has nothing to do yet hands the weights over at once.
        reader, scorer = DocReader.of(self.model, settings), path_scorer(self.model)
        if reader.listens and not annotated:
            check_shared(self.model, [view.doc for view in views])
        for group in reader.groups(views):
            units = [view.units() if annotated else view.units().unannotated() for view in group]
            scores = reader.emissions(self.model, group)
            masks = [decodable_tags(each, index) for each in units]
            yield group, Decoding.of(scorer, scores, masks, calibration)

    def _columns(self, view: DocView, start: int, end: int, label: str) -> tuple[int, int, int, int] | None:
        """An entity as `EntitySpans` have it; None where the model cannot find it."""
        units = view.unit_span(start, end)
        return (0, *units, self.labels.index(label)) if units and label in self.labels else None

    def _entities(self, views: Views, spans: EntitySpans, probability: Probabilities) -> list[FoundEntity]:
        labels = self.labels
        edges = zip(spans.sequence.tolist(), spans.start.tolist(), spans.end.tolist(), strict=True)
        places = [views[text].char_span(start, end) for text, start, end in edges]
        return [
            FoundEntity(start, end, labels[label], weight)
            for (start, end), label, weight in zip(places, spans.label.tolist(), probability.tolist(), strict=True)
        ]

    def _check_process(self) -> None:
        if self.model.ops.name == "cupy" and os.getpid() != self._process:
            raise RuntimeError(
                f"The component '{self.name}' is on a GPU, which a forked process cannot use. Use n_process=1 with a "
                "larger batch_size, or load the pipeline on the CPU, by spacy.require_cpu() before spacy.load()."
            )


def _by_character(view: DocView, values: Probabilities) -> Probabilities:
    """The values of units, for each character; 1 between units. *Shape* [n] to [n_characters]"""
    if len(values) == len(view.doc.text):
        return values
    spread = np.ones(len(view.doc.text))
    starts, sizes = view.places().T
    spread[ranges(starts, sizes)] = np.repeat(values, sizes)
    return spread
