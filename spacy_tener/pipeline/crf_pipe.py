"""What a trained component does: it finds entities, and computes probabilities of entities and whole annotations."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import minibatch
from spacy.vocab import Vocab

from ..batching.sequences import ranges
from ..crf.marginals import EntitySpans
from ..crf.scorer import PathScorer
from ..models.tagger import TaggerModel, on_host
from ..tagging import TagLayout
from .decoding import Decoding, Probabilities, joined
from .entities import FoundEntity, Place, UnitEntity, set_entities
from .learning.targets import make_target
from .settings import TEMPERATURE, TOKEN_LENGTH, NERSettings
from .tags import LabelIndex, Mask, agreeing_tags, decodable_tags, join_masks
from .units import DocView, view_of
from .windows import DocReader, check_shared

_SEEN = 50
"""Tokens after which their length is compared with that of training."""
_LONGER = 1.2
"""Mean length of tokens that are not single characters."""


@dataclass(frozen=True)
class Reading:
    """One possible set of entities of a whole text: a path of the CRF.

    entities: The probability of each is its marginal over all readings, not of this one alone.
    log_probability: Also finite for a long text, where `probability` underflows to 0.
    """

    probability: float
    entities: list[FoundEntity]
    log_probability: float


@dataclass(frozen=True)
class Marginals:
    """Marginal probabilities over all readings of a text.

    entities: Spans that may be entities, including those that exclude each other.
    outside: Probability that each character of `doc.text` is in no entity. *Shape* [n_characters]
    """

    entities: list[FoundEntity]
    outside: Probabilities


class CRFPipe(TrainablePipe):
    """A component with a CRF, and the probabilities that follow from it.

    All methods but `predict`, `pipe`, `set_annotations` and `marginals` read a text as if it had no entities yet:
    `doc.ents` is neither used nor changed. Probabilities are exact, over Docs of any length, at the temperature in
    `cfg`: those of all readings of a text add up to 1, and those of entities that exclude each other to at most 1.
    """

    vocab: Vocab
    model: TaggerModel
    name: str
    cfg: dict[str, Any]
    _process: int
    """The process that made the component."""
    _seen: tuple[int, int] | None = (0, 0)
    """Tokens and characters read so far; None once they were compared with those of training."""
    _checked: tuple[dict[str, Any], NERSettings] | None = None
    """The `cfg` whose settings were checked last, and these."""

    @property
    def settings(self) -> NERSettings:
        """Settings of reading Docs and writing entities, as `cfg` has them: a change there is saved with the
        component, and checked once."""
        if self._checked is None or self._checked[0] != self.cfg:
            self._checked = deepcopy(self.cfg), NERSettings.of(self.cfg)
        return self._checked[1]

    @property
    def labels(self) -> tuple[str, ...]:
        """The entity types that the component can predict."""
        return tuple(self.cfg["labels"])

    @property
    def temperature(self) -> float:
        """Divisor of all scores of the CRF where probabilities are computed; 1 unless the component is calibrated."""
        temperature = self.cfg.get(TEMPERATURE, 1.0)
        if not (isinstance(temperature, (int, float)) and 0.0 < temperature < np.inf):
            raise ValueError(
                f"The temperature of tener_ner is {temperature!r}, but must be a number above 0. Run `spacy tener "
                "calibrate` again."
            )
        return float(temperature)

    @property
    def _label_index(self) -> LabelIndex:
        return LabelIndex([self.vocab.strings[label] for label in self.cfg["labels"]])

    def predict(self, docs: Iterable[Doc]) -> list[list[UnitEntity]]:
        """Find the entities of a batch of Docs without changing them.

        docs (Iterable[Doc]): The Docs.
        RETURNS (List[List[UnitEntity]]): The entities of each Doc, in units of the view: tokens or characters.
        """
        return self._find(docs, self.settings)

    def _find(self, docs: Iterable[Doc], settings: NERSettings) -> list[list[UnitEntity]]:
        labels, found = self.labels, list[list[UnitEntity]]()
        for views, decoding in self._decodings(docs, annotated=True):
            if self._seen and settings.view == "tokens":
                self._compare_tokens(views)
            best = decoding.best()
            weights, least = [1.0] * best.label.size, [0.0] * len(labels)
            if settings.asks_probabilities:
                weights, least = decoding.probabilities(best).tolist(), settings.thresholds(labels)
            rows = list(zip(best.start.tolist(), best.end.tolist(), best.label.tolist(), weights, strict=True))
            for part in decoding.per_text(best):
                found.append([UnitEntity(a, z, labels[i], w) for a, z, i, w in rows[part] if w >= least[i]])
        return found

    def set_annotations(self, docs: Iterable[Doc], scores: Sequence[Sequence[UnitEntity]]) -> None:
        """Add entities to those that the Docs already have.

        docs (Iterable[Doc]): The Docs.
        scores (Sequence[Sequence[UnitEntity]]): What `predict` returned for them.
        """
        _set_annotations(docs, scores, self.settings)

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128, spans_key: str | None = None) -> Iterator[Doc]:
        """Add entities to a stream of Docs.

        stream (Iterable[Doc]): The Docs.
        batch_size (int): The number of Docs to process at once.
        spans_key (Optional[str]): The group of probabilities for this call, if the settings have none; as in
            `nlp.pipe(texts, component_cfg={"tener_ner": {"spans_key": "sc"}})`.
        YIELDS (Doc): The Docs, in order.
        """
        settings, on_error = self.settings, self.get_error_handler()
        if settings.spans_key or not spans_key:
            yield from super().pipe(stream, batch_size=batch_size)
            return
        settings = replace(settings, spans_key=spans_key)
        for docs in minibatch(stream, batch_size):
            try:
                _set_annotations(docs, self._find(docs, settings), settings)
                yield from docs
            except Exception as error:
                on_error(self.name, self, docs, error)

    def scored(self, docs: Iterable[Doc]) -> list[list[FoundEntity]]:
        """Find the entities of each Doc with their probabilities.

        docs (Iterable[Doc]): The Docs. Where the model listens to a shared component, that one has processed them.
        RETURNS (List[List[FoundEntity]]): For each Doc, its entities by characters of the text.
        """
        return [found for read in self._decodings(docs) for found in best_entities(self, *read)]

    def probabilities(self, doc: Doc, spans: Iterable[Span | Place]) -> list[float]:
        """Return the probability that each span is an entity of its label.

        doc (Doc): The Doc.
        spans (Iterable[Union[Span, Tuple[int, int, str]]]): Spans of the Doc, or their start and end in characters of
            its text, and their label.
        RETURNS (List[float]): The probabilities; 0 for a span that the model cannot find: one that is not made of
            whole tokens in the view `tokens`, or whose label is not one of the model's.
        """
        places = [(s.start_char, s.end_char, s.label_) if isinstance(s, Span) else s for s in spans]
        ((views, decoding),) = self._decodings([doc])
        return probabilities_of_places(self, views, decoding, [places])[0]

    def _compared(self, docs: Iterable[Doc], spans: Sequence[tuple[int, int, str]]) -> Probabilities:
        """Return the probabilities of the same spans in each of several Docs.

        docs (Iterable[Doc]): The Docs, all of the same number of tokens or characters.
        spans (Sequence[Tuple[int, int, str]]): Start and end in the units of the view, and the label.
        RETURNS (ndarray): *Shape* [docs, spans]
        """
        rows = [(start, end, self.labels.index(label)) for start, end, label in spans]
        columns = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        answers = [np.empty((0, len(spans)))]
        for views, decoding in self._decodings(docs):
            texts = np.repeat(np.arange(len(views)), len(spans))
            repeated = EntitySpans(texts, *(np.tile(column, len(views)) for column in columns))
            answers.append(decoding.probabilities(repeated).reshape(len(views), len(spans)))
        return np.concatenate(answers)

    def k_best(self, docs: Iterable[Doc], k: int = 5) -> list[list[Reading]]:
        """Find the k most probable readings of each Doc as a whole, best first; fewer where there are fewer.

        docs (Iterable[Doc]): The Docs.
        k (int): Maximum number of readings of a Doc.
        RETURNS (List[List[Reading]]): For each Doc, its readings. An empty Doc has one, of no entities.
        """
        answers = []
        for views, decoding in self._decodings(docs):
            paths = decoding.k_best(k)
            spans = joined([entities for text in paths for _, entities in text])
            entities = iter(_entities(self.labels, views, spans, decoding.probabilities(spans)))
            for text in paths:
                answers.append(
                    [Reading(float(np.exp(log_p)), [next(entities) for _ in own.label], log_p) for log_p, own in text]
                )
        return answers

    def rivals(self, docs: Iterable[Doc], n: int = 3, minimum: float = 0.01) -> list[list[list[FoundEntity]]]:
        """Find the alternatives to each entity of each Doc: the other spans that share characters with it, with other
        edges, another label or both.

        docs (Iterable[Doc]): The Docs.
        n (int): Maximum number of rivals of an entity.
        minimum (float): Minimum probability of a rival, above 0. All spans of this probability are compared.
        RETURNS (List[List[List[FoundEntity]]]): For each entity that `scored` returns, its rivals, most probable first.
        """
        _check_minimum(minimum, "a rival")
        answers = []
        for views, decoding in self._decodings(docs):
            best = decoding.best()
            spans, probability, counts = decoding.rivals(best, n, minimum)
            found = iter(_entities(self.labels, views, spans, probability))
            by_entity = [list(itertools.islice(found, count)) for count in counts]
            answers += [by_entity[part] for part in decoding.per_text(best)]
        return answers

    def marginals(self, docs: Iterable[Doc], minimum: float = 0.05) -> list[Marginals]:
        """Return the probabilities of all possible entities of each Doc, and that each character is in none. Entities
        that Docs already have are kept.

        docs (Iterable[Doc]): The Docs.
        minimum (float): Minimum probability of an entity, above 0.
        RETURNS (List[Marginals]): For each Doc, its possible entities, and the probability that each character is in
            none.
        """
        _check_minimum(minimum, "an entity")
        answers = []
        for views, decoding in self._decodings(docs, annotated=True):
            spans, probability = decoding.candidates(minimum)
            found: list[list[FoundEntity]] = [[] for _ in views]
            entities = _entities(self.labels, views, spans, probability)
            for text, entity in zip(spans.sequence.tolist(), entities, strict=True):
                found[text].append(entity)
            for view, own, outside in zip(views, found, decoding.outside(), strict=True):
                answers.append(Marginals(own, _by_character(view, outside)))
        return answers

    def likelihood(self, examples: Iterable[Example]) -> list[float]:
        """Return the probability of each example's gold annotation as a whole: of all readings that agree with it.

        examples (Iterable[Example]): The examples, with no label that the component does not have. Spans known to be
            incorrect are ignored.
        RETURNS (List[float]): 0 if the model has no such reading, as for an entity across a known sentence start.
        """
        examples = list(examples)
        masks, answers = iter(gold_masks(self, examples)), list[float]()
        for views, decoding in self._decodings(example.predicted for example in examples):
            answers += decoding.share(list(itertools.islice(masks, len(views))))
        return answers

    def entropy(self, docs: Iterable[Doc]) -> list[float]:
        """Return the entropy of all readings of each Doc, in nats.

        docs (Iterable[Doc]): The Docs.
        RETURNS (List[float]): 0 if only one reading is possible, as for an empty Doc.
        """
        return [value for _, decoding in self._decodings(docs) for value in decoding.entropy()]

    def _decodings(
        self, docs: Iterable[Doc], *, annotated: bool = False
    ) -> Iterator[tuple[Sequence[DocView], Decoding]]:
        """Yield the views and the `Decoding` of groups of Docs, which are of bounded size.

        docs (Iterable[Doc]): The Docs.
        annotated (bool): Keep the entities that the Docs have. Otherwise they are ignored.
        """
        self._check_process()
        settings, index, temperature = self.settings, self._label_index, self.temperature
        views: list[DocView] = [view_of(doc, settings.view) for doc in docs]
        if not any(len(view) for view in views):
            # Nothing to read, so that the model need not be trained.
            if views:
                yield views, _decoding_of_nothing(index.layout, len(views))
            return
        reader = DocReader.of(self.model, settings)
        if reader.listens and not annotated:
            check_shared(self.model, [view.doc for view in views])
        for group in reader.groups(views):
            scores = reader.emissions(self.model, group)
            # In the time in which a GPU computes the emissions.
            masks, lengths = [_mask(view, index, annotated) for view in group], [len(view) for view in group]
            allowed = join_masks(masks, lengths, index.layout.n_tags)
            crf, emissions = on_host(self.model, scores)
            yield group, Decoding(crf, emissions, lengths, allowed, temperature)

    def _compare_tokens(self, views: Sequence[DocView]) -> None:
        """Warn once if the model was trained on single characters and reads words, or vice versa."""
        trained = self.cfg.get(TOKEN_LENGTH)
        n_tokens, n_characters = self._seen or (0, 0)
        n_tokens += sum(len(view) for view in views)
        n_characters += sum(int(view.places()[:, 1].sum()) for view in views)
        self._seen = (n_tokens, n_characters) if trained and n_tokens < _SEEN else None
        if trained and self._seen is None and (trained > _LONGER) != (n_characters / n_tokens > _LONGER):
            advice = "Use the tokenizer that it was trained with."
            if trained <= _LONGER:
                advice = f"To read their characters: nlp.get_pipe('{self.name}').cfg['view'] = 'characters'"
            warnings.warn(
                f"'{self.name}' was trained on tokens of {trained:.1f} characters, and these Docs have tokens of "
                f"{n_characters / n_tokens:.1f}: it will hardly find entities. {advice}",
                stacklevel=2,
            )

    def _check_process(self) -> None:
        if self.model.ops.name == "cupy" and os.getpid() != self._process:
            raise RuntimeError(
                f"The component '{self.name}' is on a GPU, which a forked process cannot use. Use n_process=1 with a "
                "larger batch_size, or load the pipeline on the CPU, by spacy.require_cpu() before spacy.load()."
            )


def _set_annotations(docs: Iterable[Doc], found: Sequence[Sequence[UnitEntity]], settings: NERSettings) -> None:
    for doc, entities in zip(docs, found, strict=True):
        set_entities(view_of(doc, settings.view), entities, settings)


def best_entities(ner: CRFPipe, views: Sequence[DocView], decoding: Decoding) -> list[list[FoundEntity]]:
    """Return the same as `scored`, for a group from `_decodings`."""
    best = decoding.best()
    found = _entities(ner.labels, views, best, decoding.probabilities(best))
    return [found[part] for part in decoding.per_text(best)]


def probabilities_of_places(
    ner: CRFPipe, views: Sequence[DocView], decoding: Decoding, places: Sequence[Sequence[Place]]
) -> list[list[float]]:
    """Return the same as `probabilities`, for the spans of each Doc of a group from `_decodings`."""
    labels, rows = ner.labels, dict[int, tuple[int, ...]]()
    ends = np.cumsum([0, *map(len, places)])
    for text, (view, own) in enumerate(zip(views, places, strict=True)):
        size = len(view.doc.text)
        for i, (start, end, label) in enumerate(own, start=int(ends[text])):
            if not 0 <= start < end <= size:
                raise ValueError(f"The span {start}, {end} does not lie in the Doc's {size} characters.")
            units = view.unit_span(start, end)
            if units and label in labels:
                rows[i] = (text, *units, labels.index(label))
    weights = np.zeros(ends[-1])
    columns = np.array(list(rows.values()), dtype=np.int64).reshape(-1, 4).T
    weights[list(rows)] = decoding.probabilities(EntitySpans(*columns))
    return [weights[start:end].tolist() for start, end in itertools.pairwise(ends)]


def gold_masks(ner: CRFPipe, examples: Iterable[Example]) -> list[Mask]:
    """Return a mask of the tags that agree with the gold annotation of each example, for `likelihood`."""
    settings, index = ner.settings, ner._label_index
    targets = (make_target(each, settings.view, index, None) for each in examples)
    return [agreeing_tags(target.tags, None, index.layout) for target in targets]


def _check_minimum(minimum: float, what: str) -> None:
    if not 0.0 < minimum <= 1.0:
        raise ValueError(f"The minimum probability of {what} must be above 0 and at most 1, not {minimum}.")


def _entities(
    labels: Sequence[str], views: Sequence[DocView], spans: EntitySpans, probability: Probabilities
) -> list[FoundEntity]:
    found = []
    for text, unit, stop, label, weight in zip(
        *(column.tolist() for column in spans), probability.tolist(), strict=True
    ):
        start, end = views[text].char_span(unit, stop)
        found.append(FoundEntity(start, end, labels[label], weight))
    return found


def _mask(view: DocView, index: LabelIndex, annotated: bool) -> Mask | None:
    """Return the tags that decoding may choose. *Shape* [n, n_tags], or None if every tag is allowed"""
    if view.is_plain:
        return None
    units = view.units()
    return decodable_tags(units if annotated else units.unannotated(), index)


def _decoding_of_nothing(layout: TagLayout, n_texts: int) -> Decoding:
    """Make the decoding of empty texts by a CRF whose weights are all 0."""
    n = layout.n_labels
    start, end, outside, inside = (
        np.zeros(shape, dtype=np.float32) for shape in (2 * n + 1, 2 * n + 1, (2 * n + 1, 2 * n + 1), (2, 2 * n))
    )
    scorer = PathScorer((start, end, outside, inside))
    return Decoding(scorer, np.empty((0, layout.n_tags), dtype=np.float32), [0] * n_texts, None)


def _by_character(view: DocView, values: Probabilities) -> Probabilities:
    """Spread the values of units and of the gaps before them over characters. *Shape* [n, 2] to [n_characters]"""
    starts, sizes = view.places().T
    ends = np.append(0, starts + sizes)
    spread = np.ones(len(view.doc.text))
    for begins, lengths, column in ((starts, sizes, 0), (ends[:-1], starts - ends[:-1], 1)):
        spread[ranges(begins, lengths)] = np.repeat(values[:, column], lengths)
    return spread
