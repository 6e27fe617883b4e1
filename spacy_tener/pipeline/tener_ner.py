"""The component: `nlp.add_pipe("tener_ner")`."""

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from spacy.errors import Errors
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.pipeline.ner import ner_score
from spacy.tokens import Doc
from spacy.training import Example, validate_examples, validate_get_examples
from spacy.util import minibatch
from spacy.vocab import Vocab
from thinc.api import Optimizer, set_dropout_rate

from ..architectures.tagger import TaggerModel, crf, depth_of, set_labels
from ..embedders.tables import check_loaded, observe
from ..errors import RemedyError, check_choice, wrap_load_errors
from ..features.tokens import TokenBatch
from ..nn.backends import Layer
from ..nn.shim import require_torch
from ..optim.optimizers import warm_up
from ..requirements import add_requirements
from .batch_decoding import BatchDecoding
from .decoding import Decoding
from .entities import UnitEntity, add_entities, existing_entities
from .learning.distillation import Teacher
from .learning.targets import Target, count_latin_edges, labels_with_exceptions, make_targets
from .nesting import all_entities, check_annotation
from .predicting import TokenLengths, decode_batches, select_entities, word_lengths
from .scoring import score_char_entities, score_nested_entities
from .settings import LEARNED, LearnedValues, NERSettings
from .tags import LabelIndex, index_labels
from .tokenizer import MultilingualTokenizer
from .units import LINE_BREAK, ORNAMENT, DocView, view_of
from .windows import WindowBatcher, check_shared, tokens_of_views, tokens_of_windows
from .words import LexiconEditor

_CHANGED_BY_UPDATES = {"labels", "labels_over_lines", "labels_with_ornaments", "latin_edges"}
"""Keys of `cfg` that change in training and are no settings."""
_SAMPLE_SIZE = 10
_OBSERVE_BATCH_SIZE = 256


class TenerNER(TrainablePipe):
    """Named entity recognition by a CRF over any token-to-vector model.

    Behaves like spaCy's `ner` in all that both do (https://spacy.io/api/entityrecognizer).
    """

    vocab: Vocab
    model: TaggerModel
    name: str
    cfg: dict[str, Any]
    _process: int
    """The process that made the component."""
    _checked: tuple[dict[str, Any], NERSettings] | None = None
    """The part of `cfg` that was checked last, and the settings made of it."""

    def __init__(
        self,
        vocab: Vocab,
        model: TaggerModel,
        name: str = "tener_ner",
        *,
        settings: NERSettings | None = None,
        scorer: Callable[..., Any] | None = None,
    ) -> None:
        """Initialize the component.

        vocab (Vocab): The shared vocabulary.
        model (Model[List[Doc], List[Floats2d]]): The tagger.
        name (str): The component's name in the pipeline.
        settings (Optional[NERSettings]): Settings of reading Docs and writing entities.
        scorer (Optional[Callable]): The scoring method.
        """
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.cfg: dict[str, Any] = {"labels": [], **(settings or NERSettings()).to_cfg()}
        self._rehearsal_model: TaggerModel | None = None
        self._teacher: Teacher | None = None
        self._token_lengths = TokenLengths()
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.vocab, self.model, self.name, self.scorer, self.cfg)

    @property
    def settings(self) -> NERSettings:
        """The checked settings in `cfg`. Users change them in `cfg`, so they are compared on every call, and checked
        again only after a change."""
        settings = {name: value for name, value in self.cfg.items() if name not in _CHANGED_BY_UPDATES}
        if self._checked is None or self._checked[0] != settings:
            self._checked = deepcopy(settings), NERSettings.from_cfg(settings)
        return self._checked[1]

    @property
    def learned(self) -> LearnedValues:
        """The values in `cfg` that training and calibration found out."""
        return LearnedValues.from_cfg(self.cfg)

    def _set_learned(self, learned: LearnedValues) -> None:
        for name in LEARNED:
            self.cfg.pop(name, None)
        self.cfg.update(learned.to_cfg())

    @property
    def labels(self) -> tuple[str, ...]:
        """The entity types that the component can predict."""
        return tuple(self.cfg["labels"])

    @property
    def depth(self) -> int:
        """How deep the entities that it finds may be nested: 1 if none lies within another."""
        return depth_of(self.model)

    @property
    def overlap_key(self) -> str | None:
        """The group of `doc.spans` with entities within others; None if the component finds none of these."""
        return self.settings.spans_key if self.depth > 1 else None

    @property
    def temperature(self) -> float:
        """Divisor of all scores of the CRF where probabilities are computed; 1 unless the component is calibrated."""
        temperature = self.learned.temperature
        if not (isinstance(temperature, (int, float)) and 0.0 < temperature < np.inf):
            raise ValueError(
                f"The temperature of tener_ner is {temperature!r}, but must be a number above 0. Run `spacy tener "
                "calibrate` again."
            )
        return float(temperature)

    @property
    def label_index(self) -> LabelIndex:
        """The labels, and the rules that their entities may break."""

        def indices(labels: Iterable[str]) -> list[int]:
            return [self.labels.index(label) for label in labels]

        learned = self.learned
        return LabelIndex(
            index_labels(self.labels).hashes,
            over_lines=indices(learned.labels_over_lines),
            with_ornaments=indices(learned.labels_with_ornaments),
            within_words=indices(learned.labels_within_words),
        )

    @property
    def lexicon(self) -> LexiconEditor:
        """Lists of words that can be changed after training, for all Docs or for some."""
        return LexiconEditor((node.attrs.get("vocabulary") for node in self.model.walk()), self.name)

    @property
    def label_data(self) -> list[str]:
        """Labels as `spacy init labels` writes them, for `initialize(labels=...)` to read."""
        return list(self.cfg["labels"])

    @property
    def incorrect_spans_key(self) -> str | None:
        key: str | None = self.cfg["incorrect_spans_key"]
        return key

    def add_label(self, label: str) -> int:
        """Add an entity type, before or after training. The weights of other types are kept.

        label (str): The entity type.
        RETURNS (int): 0 if the component had it already, otherwise 1.
        """
        _check_label(label)
        if label in self.cfg["labels"]:
            return 0
        self._set_checked_labels([*self.cfg["labels"], label])
        return 1

    def _set_checked_labels(self, labels: list[str]) -> None:
        """Set the labels of a component, which have been checked."""
        # First what can fail: torch may be missing, or the model be another one.
        set_labels(self.model, len(labels))
        self.cfg["labels"] = labels
        for label in labels:
            self.vocab.strings.add(label)

    def extend(
        self, labels: Iterable[str], teacher: Teacher | None = None, rename: Mapping[str, str] | None = None
    ) -> None:
        """Add labels to a trained component. What it learns from now on, a teacher may complete.

        labels (Iterable[str]): Labels to add.
        teacher (Optional[Teacher]): This component as it was before. See `spacy_tener.Extension.v1`.
        rename (Optional[Mapping[str, str]]): Other names of labels that it has.
        """
        names, labels = dict(rename or {}), _checked_labels(labels, self.name)
        for label in names:
            check_choice("label to rename", label, self.labels)
        for label in names.values():
            _check_label(label)
        renamed = [names.get(label, label) for label in self.labels]
        if len(set(renamed)) < len(renamed):
            raise RemedyError(f"Two labels of '{self.name}' would have one name", "Rename to labels that it lacks.")
        self._set_checked_labels(list(dict.fromkeys([*renamed, *labels])))
        self._set_learned(self.learned.rename(names))
        if isinstance(self.cfg["threshold"], dict):
            self.cfg["threshold"] = {names.get(label, label): value for label, value in self.cfg["threshold"].items()}
        self._teacher = teacher

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        labels: Iterable[str] | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        """Set the labels, initialize the weights, and add an embedding for every string of the training data.

        get_examples (Callable[[], Iterable[Example]]): Returns the training data, or a sample of it.
        nlp (Optional[Language]): The pipeline.
        labels (Optional[Iterable[str]]): The entity types, as `spacy init labels` writes them. Without it they are
            read from the data.
        teacher (Optional[Teacher]): `spacy_tener.Teacher.v1`: a trained pipeline to learn from, beside the annotation.
            The component gets the teacher's labels.
        """
        validate_get_examples(get_examples, "TenerNER.initialize")
        if labels is None:
            spans = (span for example in get_examples() for span in all_entities(example.reference, self.overlap_key))
            labels = sorted({span.label_ for span in spans} - {""})
        labels = _checked_labels(labels, self.name)
        self._check_nesting(get_examples, teacher)
        self._teacher = teacher
        # The teacher's labels come first, as its distributions need.
        self._set_checked_labels(list(dict.fromkeys([*(teacher.labels if teacher else ()), *self.labels, *labels])))
        sample = self._sample(get_examples())
        lengths = [length for doc in sample for length in word_lengths(doc).tolist()]
        # If the tokenizer splits only some scripts into characters, the length of tokens says more about the language.
        is_comparable = bool(lengths) and not (nlp and isinstance(nlp.tokenizer, MultilingualTokenizer))
        text_length, text_sentences = self._usual_sizes(get_examples())
        self._set_learned(
            LearnedValues(
                token_length=sum(lengths) / len(lengths) if is_comparable else None,
                text_length=text_length,
                text_sentences=text_sentences,
            )
        )
        self._token_lengths = TokenLengths()
        self.model.initialize(X=sample or None)
        crf(self.model)
        observe(self.model, self._token_batches(get_examples()))
        for layer in self.model.walk():
            if isinstance(layer, Layer):
                layer.select_pieces(lambda: filter(None, (example.predicted.text for example in get_examples())))
        if nlp is not None:
            add_requirements(nlp)

    def _check_nesting(self, get_examples: Callable[[], Iterable[Example]], teacher: Teacher | None) -> None:
        """Raise if a component for entities within entities finds none of them in its data, or has another teacher."""
        depth, key = self.depth, self.settings.spans_key
        if depth > 1 and key is None:
            remedy = f'Set spans_key = "sc" in the section of {self.name}: the group of doc.spans with all entities.'
            raise RemedyError(f"'{self.name}' has a depth of {depth}, but no spans_key", remedy)
        if depth > 1:
            check_annotation((example.reference for example in get_examples()), key, depth)
        if teacher is not None and depth_of(teacher.model) != depth:
            remedy = f"Set depth = {depth_of(teacher.model)} in the section of CRFTagger, as the teacher has it."
            raise RemedyError(f"'{self.name}' has a depth of {depth}, its teacher another one", remedy)

    def _sample(self, examples: Iterable[Example]) -> list[Doc]:
        """Return the first Docs as input of the model, long ones in windows."""
        settings = self.settings
        views = [view_of(example.predicted, settings.view) for example in itertools.islice(examples, _SAMPLE_SIZE)]
        batcher = WindowBatcher.of(self.model, settings, training=True)
        batch = next(batcher.batches(batcher.split(views)), [])
        return [doc for doc in tokens_of_windows(batch).docs if len(doc)]

    def _usual_sizes(self, examples: Iterable[Example]) -> tuple[int, int] | tuple[None, None]:
        """Return the units and the sentences of which nine of ten texts do not have more; None without texts."""
        # One at a time: the corpus may be larger than memory.
        views = (view_of(example.predicted, self.settings.view) for example in examples)
        sizes = [(len(view), 1 + view.sentence_ends()[:-1].sum()) for view in views if len(view)]
        if not sizes:
            return None, None
        units, sentences = np.percentile(sizes, 90, axis=0)
        return int(units), int(sentences)

    def _token_batches(self, examples: Iterable[Example]) -> Iterator[TokenBatch]:
        """Yield the units of the Docs, as input of the model."""
        settings = self.settings
        views = (view_of(example.predicted, settings.view) for example in examples)
        for batch in minibatch(filter(len, views), _OBSERVE_BATCH_SIZE):
            yield tokens_of_views(batch)

    def predict(self, docs: Iterable[Doc]) -> list[list[UnitEntity]]:
        """Find the entities of a batch of Docs without changing them.

        docs (Iterable[Doc]): The Docs.
        RETURNS (List[List[UnitEntity]]): The entities of each Doc, in units of the view: tokens or characters.
        """
        return [entities for _, entities in self._find(docs, self.settings)]

    def _find(self, docs: Iterable[Doc], settings: NERSettings) -> list[tuple[DocView, list[UnitEntity]]]:
        """Return the view of each Doc, and the entities in its units."""
        found: list[tuple[DocView, list[UnitEntity]]] = []
        for views, batch in self._decode_batches(docs, settings):
            if settings.view == "tokens":
                self._token_lengths.compare(views, self.learned.token_length, self.name)
            found += zip(views, select_entities(batch, self.labels, settings), strict=True)
        return found

    def _decode_batches(
        self, docs: Iterable[Doc], settings: NERSettings
    ) -> Iterator[tuple[Sequence[DocView], BatchDecoding]]:
        self._check_process()
        views = [view_of(doc, settings.view) for doc in docs]
        return decode_batches(self.model, views, self.label_index, settings, self.temperature)

    def set_annotations(self, docs: Iterable[Doc], scores: Sequence[Sequence[UnitEntity]]) -> None:
        """Add entities to those that the Docs already have.

        docs (Iterable[Doc]): The Docs.
        scores (Sequence[Sequence[UnitEntity]]): What `predict` returned for them.
        """
        settings = self.settings
        for doc, entities in zip(docs, scores, strict=True):
            add_entities(view_of(doc, settings.view), entities, settings, nested=self.depth > 1)

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128, spans_key: str | None = None) -> Iterator[Doc]:
        """Add entities to a stream of Docs.

        stream (Iterable[Doc]): The Docs.
        batch_size (int): The number of Docs to process at once.
        spans_key (Optional[str]): The group of probabilities for this call, if the settings have none; as in
            `nlp.pipe(texts, component_cfg={"tener_ner": {"spans_key": "sc"}})`.
        YIELDS (Doc): The Docs, in order.
        """
        settings, on_error = self.settings, self.get_error_handler()
        settings = replace(settings, spans_key=settings.spans_key or spans_key)
        for docs in minibatch(stream, batch_size):
            try:
                for view, entities in self._find(docs, settings):
                    add_entities(view, entities, settings, nested=self.depth > 1)
                yield from docs
            except Exception as error:
                on_error(self.name, self, docs, error)

    def decode(self, docs: Iterable[Doc]) -> Iterator[Decoding]:
        """Run the model once, and yield the predictions for each text: entities, probabilities of spans, k best label
        sequences, alternatives, marginals, entropy, and the likelihood of an annotation.

        docs (Iterable[Doc]): The Docs, which are not changed. Their entities count as existing entities, so pass Docs
            that the component has not processed. A shared component that the model listens to must have processed them.
        YIELDS (Decoding): The predictions for each Doc, in order.
        """
        docs = list(docs)
        check_shared(self.model, docs)
        settings = self.settings
        for views, batch in self._decode_batches(docs, settings):
            existing = [existing_entities(view) for view in views]
            for index, view in enumerate(views):
                yield Decoding(view, self.labels, batch, index, settings.spans_key, existing[index])

    def annotate(self, decodings: Iterable[Decoding], *, spans_key: str | None = None) -> None:
        """Write to each Doc what `nlp.pipe` would, without running the model again.

        decodings (Iterable[Decoding]): What `decode` yielded.
        spans_key (Optional[str]): The group of probabilities, if the settings have none.
        """
        settings = self.settings
        settings = replace(settings, spans_key=settings.spans_key or spans_key)
        for batch, group in itertools.groupby(decodings, lambda decoding: decoding.batch):
            found = select_entities(batch, self.labels, settings)
            for decoding in group:
                add_entities(decoding.view, found[decoding.index], settings, nested=self.depth > 1)

    def _check_process(self) -> None:
        if self.model.ops.name == "cupy" and os.getpid() != self._process:
            raise RuntimeError(
                f"The component '{self.name}' is on a GPU, which a forked process cannot use. Use n_process=1 with a "
                "larger batch_size, or load the pipeline on the CPU, by spacy.require_cpu() before spacy.load()."
            )

    @property
    def active_scorer(self) -> Callable[..., Any] | None:
        """The scoring method that `score` uses: spaCy's own counts tokens, so the view `characters` has another."""
        if self.scorer is ner_score and self.settings.view == "characters":
            return score_char_entities
        return self.scorer

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score a batch of examples by the scoring method.

        examples (Iterable[Example]): The examples.
        RETURNS (Dict[str, Any]): The scores.
        """
        examples = list(examples)  # both scorers iterate over them, and a generator would be empty for the second
        scorer = self.active_scorer
        if scorer is None:
            return {}
        scores: dict[str, Any] = scorer(examples, **{**self.cfg, "labels": self.labels, **kwargs})
        if self.overlap_key is not None:
            scores |= score_nested_entities(examples, spans_key=self.overlap_key)
        return scores

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Learn from a batch of examples. The loss is the negative log-likelihood of all tag sequences that agree with
        the annotation: tokens without annotation may have any tag.

        examples (Iterable[Example]): The examples.
        drop (float): Dropout of layers that take it from the training loop, such as spaCy's; the layers of this package
            take theirs from the config.
        sgd (Optional[Optimizer]): The optimizer. Without it, gradients are accumulated for a later step.
        losses (Optional[Dict[str, float]]): Dictionary to which the loss is added by the component's name. It is a mean
            over texts, of which one longer than `window` counts as several.
        RETURNS (Dict[str, float]): The updated dictionary.
        """
        losses = {} if losses is None else losses
        losses.setdefault(self.name, 0.0)
        examples = list(examples)
        validate_examples(examples, "TenerNER.update")
        settings = self.settings
        labels = self.label_index
        targets = make_targets(examples, labels, settings, self.depth)
        self._update_learned_values(targets, labels)
        set_dropout_rate(self.model, drop)
        require_torch()
        from .learning.learn_torch import learn

        losses[self.name] += learn(self.model, targets, settings, name=self.name, teacher=self._teacher)
        if sgd is not None:
            self.finish_update(sgd)
        return losses

    def _update_learned_values(self, targets: Sequence[Sequence[Target]], labels: LabelIndex) -> None:
        """Add what the annotated entities show to the learned values: which labels may have a line break or an
        ornament, and how many boundaries lie inside Latin words."""

        def exceptions(unit_type: int) -> list[str]:
            return [self.labels[i] for i in labels_with_exceptions(itertools.chain(*targets), labels, unit_type)]

        learned = self.learned
        edges = dict(learned.latin_edges)
        counts = count_latin_edges(itertools.chain(*targets), labels.layout)
        for label, (inside, at_edge) in zip(self.labels, counts.tolist(), strict=True):
            if inside or at_edge:
                earlier_inside, earlier_at_edge = edges.get(label, (0, 0))
                edges[label] = [earlier_inside + inside, earlier_at_edge + at_edge]
        self._set_learned(
            replace(
                learned,
                labels_over_lines=[*learned.labels_over_lines, *exceptions(LINE_BREAK)],
                labels_with_ornaments=[*learned.labels_with_ornaments, *exceptions(ORNAMENT)],
                latin_edges=edges,
            )
        )

    def rehearse(
        self,
        examples: Iterable[Example],
        *,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
        **config: Any,
    ) -> dict[str, float]:
        """Learn to keep the predictions that the model made when `nlp.resume_training()` was called: its probabilities
        of all tag sequences. Annotation is not used.

        examples (Iterable[Example]): The examples.
        sgd (Optional[Optimizer]): The optimizer.
        losses (Optional[Dict[str, float]]): Dictionary to which the loss is added by the component's name.
        RETURNS (Dict[str, float]): The updated dictionary.
        """
        losses = {} if losses is None else losses
        examples = list(examples)
        validate_examples(examples, "TenerNER.rehearse")
        settings = self.settings
        views = [view_of(example.predicted, settings.view) for example in examples]
        if self._rehearsal_model is None or not any(len(view) for view in views):
            return losses
        losses.setdefault(self.name, 0.0)
        set_dropout_rate(self.model, 0.0)
        require_torch()
        from .learning.learn_torch import rehearse

        losses[self.name] += rehearse(self.model, self._rehearsal_model, views, settings, name=self.name)
        if sgd is not None:
            self.finish_update(sgd)
        return losses

    def finish_update(self, sgd: Optimizer) -> None:
        """Update the weights by their gradients. The learning rate warms up even if no schedule is stepped.

        sgd (Optimizer): The optimizer.
        """
        warm_up(sgd, self.name)
        super().finish_update(sgd)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "TenerNER":
        """Load the component from a directory.

        path (Union[str, Path]): The directory.
        exclude (Iterable[str]): Names of parts to leave out: `vocab`, `model`, or `cfg` to keep the component's present
            settings. Labels are always loaded, since the weights depend on them.
        RETURNS (TenerNER): The component.
        """
        self._load(partial(super().from_disk, path), str(path), exclude)
        return self

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "TenerNER":
        """Load the component from bytes.

        bytes_data (bytes): What `to_bytes` returned.
        exclude (Iterable[str]): Names of parts to leave out, as for `from_disk`.
        RETURNS (TenerNER): The component.
        """
        self._load(partial(super().from_bytes, bytes_data), "the given bytes", exclude)
        return self

    def _load(self, load: Callable[..., Any], source: str, exclude: Iterable[str]) -> None:
        exclude = set(exclude)
        present = self.settings.to_cfg() if "cfg" in exclude else {}
        with wrap_load_errors(self.name, source):
            self._set_learned(LearnedValues())  # the loaded cfg need not have all of them
            load(exclude=exclude - {"cfg"})
            self._token_lengths = TokenLengths()
            self.cfg.update(present)
            _ = self.settings, self.learned, self.temperature  # checks them
            check_loaded(self.model)
            self._check_size()

    def _check_size(self) -> None:
        output = self.model.get_ref("output_layer") if self.model.has_ref("output_layer") else None
        if output is not None and output.has_dim("nO"):
            n_tags, expected = output.get_dim("nO"), self.depth * self.label_index.layout.n_tags
            if n_tags != expected:
                raise RemedyError(
                    f"its model has {n_tags} tags, but the {len(self.labels)} labels in its cfg need {expected}",
                    "Load 'cfg' and 'model' of the same pipeline. Restore them from a copy if one of them was changed.",
                )


def _check_label(label: object) -> None:
    if not isinstance(label, str):
        raise ValueError(Errors.E187)
    if not label.strip() or any("\ud800" <= character <= "\udfff" for character in label):
        raise ValueError(f"Cannot add the label {label!r}: an entity type needs a name that UTF-8 can hold.")


def _checked_labels(labels: Iterable[str], component: str) -> list[str]:
    """Return labels for a component as a list, checked."""
    if isinstance(labels, str):
        raise ValueError(f"The labels of '{component}' must be a list, not the string {labels!r}: [{labels!r}].")
    labels = list(labels)
    for label in labels:
        _check_label(label)
    return labels


def _rebuild(
    vocab: Vocab, model: TaggerModel, name: str, scorer: Callable[..., Any] | None, cfg: dict[str, Any]
) -> TenerNER:
    """Unpickle a component."""
    pipe = TenerNER(vocab, model, name, scorer=scorer)
    pipe.cfg.update(cfg)
    return pipe
