"""The trainable component `tener_ner`, which `nlp.add_pipe("tener_ner")` adds to a pipeline.

`TenerNER` implements the interface of spaCy's `TrainablePipe`. `factory.py` documents the config. The following modules
implement the steps:

- Prediction: `predicting.py` and `windows.py` run the model, `batch_decoding.py` decodes the emissions, and
  `entities.py` writes the entities to a Doc.
- Training: `learning/targets.py` converts gold annotation, and `learning/learn_torch.py` computes losses and gradients.
"""

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

from ..architectures.tagger import TaggerModel, depth_of, set_labels, torch_crf
from ..embedders.tables import check_loaded, observe
from ..errors import UserError, check_choice, pluralize, wrap_load_errors
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
from .predicting import TokenizationCheck, decode_batches, select_entities, token_lengths, warn_about_character_embedder
from .scoring import score_char_entities, score_nested_entities
from .settings import LEARNED, LearnedValues, NERSettings
from .tags import LabelIndex, index_labels, is_label
from .tokenizer import MultilingualTokenizer
from .units import LINE_BREAK, ORNAMENT, DocView, view_of
from .windows import WindowBatcher, check_shared, tokens_of_views, tokens_of_windows
from .words import LexiconEditor

# Keys in `cfg` that `update` changes. They do not affect the settings, so a change requires no validation.
_CHANGED_BY_UPDATES = {"labels", "labels_over_lines", "labels_with_ornaments", "latin_edges"}
# Number of Docs for inferring the model's dimensions.
_SAMPLE_SIZE = 10
# Batch size for collecting the strings in the training data.
_OBSERVE_BATCH_SIZE = 256


class TenerNER(TrainablePipe):
    """A trainable component for named entity recognition. It combines a token-to-vector model with a conditional random
    field (CRF).

    The component can replace spaCy's `ner` and has the same methods, see https://spacy.io/api/entityrecognizer. In
    addition, the method `decode` returns probabilities and alternative entities.

    cfg (dict[str, Any]): Labels, settings and learned values, see `settings.py`.
    _process (int): Id of the process that created the component.
    _checked (tuple[dict[str, Any], NERSettings] | None): A copy of the settings at the last validation, and the
        validated object.
    """

    vocab: Vocab
    model: TaggerModel
    name: str
    cfg: dict[str, Any]
    _process: int
    _checked: tuple[dict[str, Any], NERSettings] | None = None

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
        model (Model[List[Doc], List[Floats2d]]): The tagger, for example `spacy_tener.CRFTagger.v1`.
        name (str): The component's name in the pipeline.
        settings (Optional[NERSettings]): The settings. `make_tener_ner` describes them.
        scorer (Optional[Callable]): The scoring method.
        """
        self.vocab = vocab
        self.model = model
        self.name = name
        self.scorer = scorer
        self.cfg: dict[str, Any] = {"labels": [], **(settings or NERSettings()).to_cfg()}
        self._rehearsal_model: TaggerModel | None = None
        self._teacher: Teacher | None = None
        self._tokenization_check = TokenizationCheck()
        self._process = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.vocab, self.model, self.name, self.scorer, self.cfg)

    @property
    def settings(self) -> NERSettings:
        """The validated settings in `cfg`.

        Users can change settings in `cfg` at any time. If they have changed since the last access, they are validated
        again.
        """
        settings = {name: value for name, value in self.cfg.items() if name not in _CHANGED_BY_UPDATES}
        if self._checked is None or self._checked[0] != settings:
            self._checked = deepcopy(settings), NERSettings.from_cfg(settings)
        return self._checked[1]

    @property
    def learned(self) -> LearnedValues:
        """The values in `cfg` that were computed in training and calibration."""
        return LearnedValues.from_cfg(self.cfg)

    def _set_learned(self, learned: LearnedValues) -> None:
        for name in LEARNED:
            self.cfg.pop(name, None)
        self.cfg.update(learned.to_cfg())

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that the component can predict."""
        return tuple(self.cfg["labels"])

    @property
    def depth(self) -> int:
        """The number of nesting levels that the model predicts. It is 1 for a model without nested entities."""
        return depth_of(self.model)

    @property
    def nested_key(self) -> str | None:
        """The key in `doc.spans` for nested entities. It is None if the model does not predict nested entities."""
        return self.settings.spans_key if self.depth > 1 else None

    @property
    def temperature(self) -> float:
        """The divisor of the CRF's scores when probabilities are computed. It is 1 if the component is not
        calibrated."""
        temperature = self.learned.temperature
        if not (isinstance(temperature, (int, float)) and 0.0 < temperature < np.inf):
            raise ValueError(
                f"The temperature of tener_ner is {temperature!r}, but must be a number above 0. Run `spacy tener "
                "calibrate` again."
            )
        return float(temperature)

    @property
    def label_index(self) -> LabelIndex:
        """The labels, and their exceptions from decoding rules."""

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
        """Editor for the word lists that the model uses as features in addition to its lexicon.

        Word lists can be changed after training. A list applies to all Docs, or to the Docs that select it.
        """
        return LexiconEditor((node.attrs.get("vocabulary") for node in self.model.walk()), self.name)

    @property
    def label_data(self) -> list[str]:
        """The labels in the format that `spacy init labels` writes and `initialize(labels=...)` accepts."""
        return list(self.cfg["labels"])

    @property
    def incorrect_spans_key(self) -> str | None:
        key: str | None = self.cfg["incorrect_spans_key"]
        return key

    def add_label(self, label: str) -> int:
        """Add a label, before or after training. Existing labels keep their weights.

        label (str): The label.
        RETURNS (int): 1 if the label was added, 0 if it already exists.
        """
        _check_label(label)
        if label in self.cfg["labels"]:
            return 0
        self._set_checked_labels([*self.cfg["labels"], label])
        return 1

    def _set_checked_labels(self, labels: list[str]) -> None:
        """Set the labels and resize the output layer. The labels must already be validated."""
        # Resize the model before changing `cfg`. If resizing fails, for example because torch is not installed, `cfg`
        # must stay the same.
        set_labels(self.model, len(labels))
        self.cfg["labels"] = labels
        for label in labels:
            self.vocab.strings.add(label)

    def extend(
        self, labels: Iterable[str], teacher: Teacher | None = None, rename: Mapping[str, str] | None = None
    ) -> None:
        """Add labels to a trained component, and optionally rename labels.

        labels (Iterable[str]): Labels to add.
        teacher (Optional[Teacher]): The trained component, loaded a second time. In further training, it supplies soft
            targets for labels that a text is not annotated for. See `spacy_tener.Extension.v1`.
        rename (Optional[Mapping[str, str]]): New names for existing labels, as a dictionary from old to new names.
        """
        names, labels = dict(rename or {}), _checked_labels(labels, self.name)
        for label in names:
            fix = "The component has no labels to rename. Load a trained pipeline."
            check_choice("label", label, self.labels, "in `rename`", fix_if_empty=fix)
        for label in names.values():
            _check_label(label)
        renamed = [names.get(label, label) for label in self.labels]
        if len(set(renamed)) < len(renamed):
            raise UserError(
                f"Two labels of '{self.name}' would have the same name after renaming",
                "Choose names that are not used by other labels.",
            )
        self._set_checked_labels(list(dict.fromkeys([*renamed, *labels])))
        self._set_learned(self.learned.rename(names))
        if isinstance(self.cfg["threshold"], dict):
            self.cfg["threshold"] = {names.get(label, label): value for label, value in self.cfg["threshold"].items()}
        if teacher is not None:
            # The component keeps its calibrated temperature, which will divide its scores again. If teacher and student
            # have the same temperature, the soft targets are the teacher's original scores.
            teacher.temperature /= self.temperature
        self._teacher = teacher

    def initialize(
        self,
        get_examples: Callable[[], Iterable[Example]],
        *,
        nlp: Language | None = None,
        labels: Iterable[str] | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        """Initialize the component for training. Set the labels, initialize the weights, and create embeddings for the
        strings in the training data.

        get_examples (Callable[[], Iterable[Example]]): Function that returns the training data, or a sample of it.
        nlp (Optional[Language]): The pipeline.
        labels (Optional[Iterable[str]]): The labels, for example from a file that `spacy init labels` created. By
            default, they are collected from the training data.
        teacher (Optional[Teacher]): The teacher for knowledge distillation, see `spacy_tener.Teacher.v1`. Its labels
            are added to the component's labels.
        """
        validate_get_examples(get_examples, "TenerNER.initialize")
        if labels is None:
            spans = (span for example in get_examples() for span in all_entities(example.reference, self.nested_key))
            labels = sorted({span.label_ for span in spans} - {""})
        labels = _checked_labels(labels, self.name)
        self._check_nesting(get_examples, teacher)
        self._teacher = teacher
        # The teacher's labels come first, because its soft targets refer to the tags by index.
        self._set_checked_labels(list(dict.fromkeys([*(teacher.labels if teacher else ()), *self.labels, *labels])))
        sample = self._sample(get_examples())
        lengths = [length for doc in sample for length in token_lengths(doc).tolist()]
        if lengths and self.settings.view == "tokens":
            warn_about_character_embedder(self.model, sum(lengths) / len(lengths), self.name)
        # `TokenizationCheck` detects another tokenizer by the mean token length. With a MultilingualTokenizer, the mean
        # length also depends on the languages in the text, so it cannot be compared.
        is_comparable = bool(lengths) and not (nlp and isinstance(nlp.tokenizer, MultilingualTokenizer))
        text_length, text_sentences = self._usual_sizes(get_examples())
        self._set_learned(
            LearnedValues(
                token_length=sum(lengths) / len(lengths) if is_comparable else None,
                text_length=text_length,
                text_sentences=text_sentences,
            )
        )
        self._tokenization_check = TokenizationCheck()
        self.model.initialize(X=sample or None)
        # If the weights of the output layer could not be initialized, raise an error now instead of in training.
        torch_crf(self.model)
        observe(self.model, self._token_batches(get_examples()))
        for layer in self.model.walk():
            if isinstance(layer, Layer):
                # Remove subwords from a pretrained encoder's vocabulary that the training texts do not need, which
                # makes the model smaller.
                layer.select_subwords(lambda: filter(None, (example.predicted.text for example in get_examples())))
        if nlp is not None:
            add_requirements(nlp)

    def _check_nesting(self, get_examples: Callable[[], Iterable[Example]], teacher: Teacher | None) -> None:
        """Raise an error if the settings, the training data or the teacher do not match the model's nesting depth."""
        depth, key = self.depth, self.settings.spans_key
        if depth > 1 and key is None:
            fix = f'Set spans_key = "sc" in the section of {self.name}, to store all entities in doc.spans.'
            raise UserError(f"'{self.name}' has a depth of {depth}, but no spans_key", fix)
        if depth > 1:
            check_annotation((example.reference for example in get_examples()), key, depth)
        if teacher is not None and depth_of(teacher.model) != depth:
            fix = f"Set depth = {depth_of(teacher.model)} in the section of CRFTagger, like the teacher."
            raise UserError(f"'{self.name}' has a depth of {depth}, but its teacher has another depth", fix)

    def _sample(self, examples: Iterable[Example]) -> list[Doc]:
        """Return a few training Docs as model input. Long Docs are split into windows."""
        settings = self.settings
        views = [view_of(example.predicted, settings.view) for example in itertools.islice(examples, _SAMPLE_SIZE)]
        batcher = WindowBatcher.of(self.model, settings, training=True)
        batch = next(batcher.batches(batcher.split(views)), [])
        return [doc for doc in tokens_of_windows(batch).docs if len(doc)]

    def _usual_sizes(self, examples: Iterable[Example]) -> tuple[int, int] | tuple[None, None]:
        """Return the 90th percentiles of the text length and the number of sentences in a text.

        The text length is a number of tokens or characters. If there are no texts, both values are None.
        """
        # Use a generator, because the training data may not fit into memory.
        views = (view_of(example.predicted, self.settings.view) for example in examples)
        sizes = [(len(view), 1 + view.sentence_ends()[:-1].sum()) for view in views if len(view)]
        if not sizes:
            return None, None
        units, sentences = np.percentile(sizes, 90, axis=0)
        return int(units), int(sentences)

    def _token_batches(self, examples: Iterable[Example]) -> Iterator[TokenBatch]:
        """Yield the tokens or characters of all training Docs as model input, in batches."""
        settings = self.settings
        views = (view_of(example.predicted, settings.view) for example in examples)
        for batch in minibatch(filter(len, views), _OBSERVE_BATCH_SIZE):
            yield tokens_of_views(batch)

    def predict(self, docs: Iterable[Doc]) -> list[list[UnitEntity]]:
        """Predict the entities in a batch of Docs. The Docs are not modified.

        docs (Iterable[Doc]): The Docs.
        RETURNS (List[List[UnitEntity]]): The entities in each Doc. Start and end are token indices, or character
            offsets with `view = "characters"`.
        """
        return [entities for _, entities in self._find(docs, self.settings)]

    def _find(self, docs: Iterable[Doc], settings: NERSettings) -> list[tuple[DocView, list[UnitEntity]]]:
        """Predict the entities in Docs. Return each Doc as a sequence of tokens or characters, together with its
        entities."""
        found: list[tuple[DocView, list[UnitEntity]]] = []
        for views, batch in self._decode_batches(docs, settings):
            if settings.view == "tokens":
                self._tokenization_check.compare(views, self.learned.token_length, self.name)
            found += zip(views, select_entities(batch, self.labels, settings), strict=True)
        return found

    def _decode_batches(
        self, docs: Iterable[Doc], settings: NERSettings
    ) -> Iterator[tuple[Sequence[DocView], BatchDecoding]]:
        self._check_process()
        views = [view_of(doc, settings.view) for doc in docs]
        return decode_batches(self.model, views, self.label_index, settings, self.temperature)

    def set_annotations(self, docs: Iterable[Doc], scores: Sequence[Sequence[UnitEntity]]) -> None:
        """Set predicted entities on Docs. Existing entities are kept.

        docs (Iterable[Doc]): The Docs.
        scores (Sequence[Sequence[UnitEntity]]): The entities that `predict` returned.
        """
        settings = self.settings
        for doc, entities in zip(docs, scores, strict=True):
            add_entities(view_of(doc, settings.view), entities, settings, nested=self.depth > 1)

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128, spans_key: str | None = None) -> Iterator[Doc]:
        """Predict and set the entities in a stream of Docs.

        stream (Iterable[Doc]): The Docs.
        batch_size (int): The number of Docs in a batch.
        spans_key (Optional[str]): Key in `doc.spans` for entities with probabilities. It is only used for this call,
            and only if the setting `spans_key` is None. In `nlp.pipe`, pass
            `component_cfg={"tener_ner": {"spans_key": "sc"}}`.
        YIELDS (Doc): The Docs in order.
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
        """Run the model on Docs, and yield a `Decoding` for each Doc, which computes entities, probabilities and
        alternatives.

        docs (Iterable[Doc]): The Docs, which are not modified. Existing entities are kept, so pass Docs that the
            component has not processed yet. If the model has a listener, run the shared component on the Docs first.
        YIELDS (Decoding): The decoding of each Doc in order.
        """
        docs = list(docs)
        check_shared(self.model, docs)
        settings = self.settings
        for views, batch in self._decode_batches(docs, settings):
            existing = [existing_entities(view) for view in views]
            for index, view in enumerate(views):
                yield Decoding(view, self.labels, batch, index, settings.spans_key, existing[index])

    def annotate(self, decodings: Iterable[Decoding], *, spans_key: str | None = None) -> None:
        """Set the entities of decoded Docs without running the model again. The result is the same as with `pipe`.

        decodings (Iterable[Decoding]): The decodings that `decode` returned.
        spans_key (Optional[str]): Key in `doc.spans` for entities with probabilities. It is only used if the setting
            `spans_key` is None.
        """
        settings = self.settings
        settings = replace(settings, spans_key=settings.spans_key or spans_key)
        for batch, group in itertools.groupby(decodings, lambda decoding: decoding.batch):
            found = select_entities(batch, self.labels, settings)
            for decoding in group:
                add_entities(decoding.view, found[decoding.index], settings, nested=self.depth > 1)

    def _check_process(self) -> None:
        """Raise an error if the model is on a GPU and the process is forked, because CUDA does not support forked
        processes."""
        if self.model.ops.name == "cupy" and os.getpid() != self._process:
            raise RuntimeError(
                f"The component '{self.name}' is on a GPU, which a forked process cannot use. Use n_process=1 with a "
                "larger batch_size, or call spacy.require_cpu() before spacy.load() to load the pipeline on the CPU."
            )

    @property
    def active_scorer(self) -> Callable[..., Any] | None:
        """The scorer that `score` uses.

        With `view = "characters"`, spaCy's default scorer is replaced by a scorer that compares character offsets.
        Entities may then begin or end inside a token.
        """
        if self.scorer is ner_score and self.settings.view == "characters":
            return score_char_entities
        return self.scorer

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score a batch of examples.

        examples (Iterable[Example]): The examples.
        RETURNS (Dict[str, Any]): The scores that the scorer returns. If the model predicts nested entities, their
            scores are added.
        """
        # Two scorers iterate over the examples, so a generator must be converted to a list.
        examples = list(examples)
        scorer = self.active_scorer
        if scorer is None:
            return {}
        scores: dict[str, Any] = scorer(examples, **{**self.cfg, "labels": self.labels, **kwargs})
        if self.nested_key is not None:
            scores |= score_nested_entities(examples, spans_key=self.nested_key)
        return scores

    def update(
        self,
        examples: Iterable[Example],
        *,
        drop: float = 0.0,
        sgd: Optimizer | None = None,
        losses: dict[str, float] | None = None,
    ) -> dict[str, float]:
        """Compute the loss and the gradients for a batch of examples, and update the weights.

        The loss is the negative log-likelihood of the annotation. For tokens without annotation, the likelihood is the
        sum over all possible tags.

        examples (Iterable[Example]): The examples.
        drop (float): Dropout rate for layers that get it from the training loop, such as spaCy's layers. Layers in this
            package ignore it and use the dropout rate in their config.
        sgd (Optional[Optimizer]): The optimizer. If it is None, gradients are accumulated for a later update.
        losses (Optional[Dict[str, float]]): Dictionary to which the loss is added, with the component's name as key.
            The loss is the mean over windows. A text that is split into several windows counts several times.
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
        """Find the labels whose gold entities break decoding rules, and update the learned values in `cfg`.

        The rules forbid line breaks in entities, ornaments (such as emoji) at entity boundaries, and entity boundaries
        inside Latin words. Decoding does not apply a rule to a label whose training entities break it.
        """

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
        """Train the model to keep its earlier predictions. This prevents catastrophic forgetting.

        The loss is the cross-entropy between the tag sequence distributions of two models: the copy that
        `nlp.resume_training()` creates, and the current model. Gold annotation is not used.

        examples (Iterable[Example]): The examples.
        sgd (Optional[Optimizer]): The optimizer. If it is None, gradients are accumulated for a later update.
        losses (Optional[Dict[str, float]]): Dictionary to which the loss is added, with the component's name as key.
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
        """Update the weights with the accumulated gradients.

        If the training loop does not step the learning rate schedule, the learning rate is warmed up here.

        sgd (Optimizer): The optimizer.
        """
        warm_up(sgd, self.name)
        super().finish_update(sgd)

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> "TenerNER":
        """Load the component from a directory.

        path (Union[str, Path]): The directory.
        exclude (Iterable[str]): Names of data to exclude: `vocab`, `model` or `cfg`. With `cfg`, the component keeps
            its current settings. Labels are always loaded, because the weights depend on them.
        RETURNS (TenerNER): The component.
        """
        self._load(partial(super().from_disk, path), str(path), exclude)
        return self

    def from_bytes(self, bytes_data: bytes, *, exclude: Iterable[str] = ()) -> "TenerNER":
        """Load the component from bytes.

        bytes_data (bytes): The bytes that `to_bytes` returned.
        exclude (Iterable[str]): Names of data to exclude, as in `from_disk`.
        RETURNS (TenerNER): The component.
        """
        self._load(partial(super().from_bytes, bytes_data), "the given bytes", exclude)
        return self

    def _load(self, load: Callable[..., Any], source: str, exclude: Iterable[str]) -> None:
        exclude = set(exclude)
        before = dict(self.cfg)
        try:
            with wrap_load_errors(self.name, source):
                self._load_checked(load, exclude)
        except Exception:
            # Keep the labels that belong to the model's output layer.
            self.cfg.clear()
            self.cfg.update(before)
            raise

    def _load_checked(self, load: Callable[..., Any], exclude: set[str]) -> None:
        """Load the component, and raise an error if its parts do not fit each other."""
        n_labels = len(self.labels)
        present = self.settings.to_cfg() if "cfg" in exclude else {}
        # Reset the learned values, because spaCy merges the loaded `cfg` into the present `cfg`. Otherwise, values that
        # the loaded `cfg` does not contain would be kept.
        self._set_learned(LearnedValues())
        try:
            load(exclude=exclude - {"cfg"})
        except ValueError as error:
            if n_labels and len(self.labels) != n_labels and "dimension 'nO'" in str(error):
                reason = f"it has {pluralize(len(self.labels), 'label')}, but this component has {n_labels}"
                fix = "Load the pipeline with spacy.load, which creates a component with the labels of the pipeline."
                raise UserError(reason, fix) from error
            raise
        self._tokenization_check = TokenizationCheck()
        self.cfg.update(present)
        # Accessing these properties validates the loaded values.
        _ = self.settings, self.learned, self.temperature
        check_loaded(self.model)
        self._check_size()

    def _check_size(self) -> None:
        """Raise an error if the number of tags in the loaded model does not match the loaded labels."""
        output = self.model.get_ref("output_layer") if self.model.has_ref("output_layer") else None
        if output is not None and output.has_dim("nO"):
            n_tags, expected = output.get_dim("nO"), self.depth * self.label_index.layout.n_tags
            if n_tags != expected:
                raise UserError(
                    f"its model has {n_tags} tags, but the {len(self.labels)} labels in its cfg need {expected}",
                    "Load 'cfg' and 'model' of the same pipeline. If one of them was changed, restore both from "
                    "a backup.",
                )


def _check_label(label: object) -> None:
    """Raise an error if a label is not a string, is blank, or cannot be encoded in UTF-8."""
    if not isinstance(label, str):
        raise ValueError(Errors.E187)
    if not is_label(label):
        raise ValueError(
            f"Cannot add the label {label!r}: a label must be a non-empty string that can be encoded in UTF-8."
        )


def _checked_labels(labels: Iterable[str], component: str) -> list[str]:
    """Return labels as a list. Raise an error if a label is not valid.

    component (str): The component's name, for the error message.
    """
    if isinstance(labels, str):
        raise ValueError(f"The labels of '{component}' must be a list, not the string {labels!r}. Use [{labels!r}].")
    labels = list(labels)
    for label in labels:
        _check_label(label)
    return labels


def _rebuild(
    vocab: Vocab, model: TaggerModel, name: str, scorer: Callable[..., Any] | None, cfg: dict[str, Any]
) -> TenerNER:
    """Create the component when it is unpickled."""
    pipe = TenerNER(vocab, model, name, scorer=scorer)
    pipe.cfg.update(cfg)
    return pipe
