"""Prepare a training run that adds labels to a trained pipeline.

The new texts only need annotation for the new labels. To prevent catastrophic forgetting of the existing labels, the
trained pipeline is the teacher in knowledge distillation: its predictions on the new texts are soft targets for the
existing labels. See `pipeline/learning/distillation.py`. Used by the command `extend`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.util import filter_spans
from thinc.api import Config

from ..corpora.convert import detect_language
from ..corpora.folds import assign_folds, text_key
from ..errors import UserError
from ..pipeline.entities import offsets_of, spans_of
from ..pipeline.finding import find_crf_pipe, make_doc, overlap_groups
from ..pipeline.learning.targets import ANNOTATED_LABELS
from ..pipeline.tener_ner import TenerNER
from .config_files import entries
from .overlays import fill

TRAIN, DEV = "train.spacy", "dev.spacy"
# The new texts are split into this number of folds. One fold is the development set.
_N_FOLDS = 10
# The learning rate is the pipeline's original learning rate multiplied by this factor. With a higher learning rate, the
# existing labels' scores decrease more than the new labels' scores increase.
RATE_FACTOR = 0.3


@dataclass(frozen=True)
class Extension:
    """The labels to add to a component in a trained pipeline.

    model (str): The pipeline's path or package name.
    nlp (Language): The pipeline.
    pipe (TenerNER): The component to extend.
    labels (Sequence[str]): Labels that are annotated in the new texts.
    rename (Mapping[str, str]): New names for the component's existing labels.
    """

    model: str
    nlp: Language
    pipe: TenerNER
    labels: Sequence[str]
    rename: Mapping[str, str]

    @property
    def present(self) -> list[str]:
        """Return the component's existing labels, after renaming."""
        return [self.rename.get(label, label) for label in self.pipe.labels]

    def training_docs(self, new: Iterable[Doc], old: Iterable[Doc]) -> Iterator[Doc]:
        """Yield the training data. `doc.user_data` lists the labels for which a Doc is annotated.

        new (Iterable[Doc]): Texts with annotation for the new labels.
        old (Iterable[Doc]): Texts with annotation for the existing labels. Can be empty.
        """
        new, old = list(new), list(old)
        for doc in new:
            doc.user_data[ANNOTATED_LABELS] = list(self.labels)
        # Repeat the new texts, so that there are about as many new as old texts.
        yield from new * max(1, len(old) // len(new))
        has_new = any(ent.label_ in self.labels for doc in old for ent in doc.ents)
        for doc in old:
            self._rename(doc)
            if not has_new:
                doc.user_data[ANNOTATED_LABELS] = [label for label in self.present if label not in self.labels]
            yield doc

    def development_docs(self, docs: Sequence[Doc]) -> Iterator[Doc]:
        """Yield the development set with annotation for all labels.

        New labels have gold annotation. Existing labels are annotated with the pipeline's predictions, so that the
        evaluation shows whether the pipeline forgets them.

        docs (Sequence[Doc]): Texts with annotation for the new labels.
        """
        copies = []
        for doc in docs:
            copy = make_doc(self.nlp, doc.text)
            copy.set_ents(filter_spans(spans_of(copy, map(offsets_of, doc.ents))), default="missing")
            copies.append(copy)
        for doc, found in zip(docs, self.nlp.pipe(copies), strict=True):
            names = ((ent, self.rename.get(ent.label_, ent.label_)) for ent in found.ents)
            predicted = [(ent.start_char, ent.end_char, name) for ent, name in names if name not in self.labels]
            # Put gold entities first, because `filter_spans` prefers the first of two overlapping spans with the same
            # length.
            doc.set_ents(filter_spans([*doc.ents, *spans_of(doc, predicted)]))
            yield doc

    def _rename(self, doc: Doc) -> None:
        """Rename the entity labels in a Doc in place.

        Entities get missing annotation if their label is split. For example, if ORG is renamed to COMPANY, and the new
        texts are annotated with COMPANY and CLUB, an existing ORG entity may be either a COMPANY or a CLUB.
        """
        entities: list[Span] = []
        missing: list[Span] = []
        for ent in doc.ents:
            name = self.rename.get(ent.label_, ent.label_)
            is_split = ent.label_ in self.rename and name in self.labels
            (missing if is_split else entities).append(Span(doc, ent.start, ent.end, name))
        doc.set_ents(entities, missing=missing, default="unmodified")

    def config(self, output: Path, steps: int) -> Config:
        """Create the config for the training run.

        output (Path): Directory with the training and development set.
        steps (int): Number of training steps.
        """
        config = self.nlp.config.copy()
        names = list(self.nlp.component_names)
        learning = {self.pipe.name, *_upstream(self.nlp, self.pipe.name)}
        learning -= {*config["training"]["frozen_components"]} - {self.pipe.name}
        config["components"] = {name: {"source": self.model} for name in names}
        for name in names:
            if name not in learning and learning.intersection(_upstream(self.nlp, name)):
                # A frozen component must not listen to a `tok2vec` that is trained. Give the component its own copy of
                # the original `tok2vec`.
                config["components"][name]["replace_listeners"] = _listeners(self.nlp.config["components"][name])
        config["corpora"] = {name: _corpus(f"${{paths.{name}}}") for name in ("train", "dev")}
        config["paths"] = {**config["paths"], "train": str(output / TRAIN), "dev": str(output / DEV)}
        # Keep all other settings from the original training run, such as the batch size and dropout.
        training = config["training"]
        training.update(train_corpus="corpora.train", dev_corpus="corpora.dev")
        training.update(max_steps=steps, max_epochs=0, patience=0, eval_frequency=steps)
        # The model is selected by the entity F1 score. Other components are frozen, so their scores don't change.
        training["score_weights"] = dict.fromkeys(training["score_weights"]) | {
            "ents_f": 1.0,
            "ents_p": 0.0,
            "ents_r": 0.0,
        }
        training["frozen_components"] = [name for name in names if name not in learning]
        annotating = training["annotating_components"]
        training["annotating_components"] = [name for name in names if name in annotating]
        _adapt_optimizer(training["optimizer"], steps)
        extension: dict[str, Any] = {
            "@callbacks": "spacy_tener.Extension.v1",
            "labels": list(self.labels),
            "path": self.model,
            "component": self.pipe.name,
            "rename": dict(self.rename),
        }
        config["initialize"] = {"after_init": extension, "before_init": None, "components": {}, "tokenizer": {}}
        config["initialize"] |= {"vectors": None, "init_tok2vec": None, "vocab_data": None, "lookups": None}
        return fill(config)


def _corpus(path: str) -> dict[str, Any]:
    """Create the config section for a corpus reader."""
    return {"@readers": "spacy.Corpus.v1", "path": path, "gold_preproc": False, "max_length": 0, "limit": 0}


def _adapt_optimizer(optimizer: dict[str, Any], steps: int) -> None:
    """Adapt an optimizer's config in place: set the number of steps in the learning rate schedule, and multiply the
    learning rate by `RATE_FACTOR`.
    """
    schedule = optimizer.get("learn_rate", 0.001)
    if not isinstance(schedule, dict):
        optimizer["learn_rate"] = RATE_FACTOR * schedule
        return
    if "total_steps" in schedule:
        schedule["total_steps"] = steps
    for name in ("max_rate", "initial_rate"):
        if name in schedule:
            schedule[name] *= RATE_FACTOR


def _upstream(nlp: Language, name: str) -> list[str]:
    """Return the names of the components that a component listens to, such as a shared `tok2vec`."""
    return [other for other, pipe in nlp.components if name in getattr(pipe, "listening_components", ())]


def _listeners(component: Mapping[str, Any]) -> list[str]:
    """Return the dotted names of all listener layers in a component's config, such as `model.tok2vec`."""
    functions = ((key, str(value)) for key, value in entries(component) if key.endswith(".@architectures"))
    return [key.rpartition(".")[0] for key, value in functions if "Listener" in value]


def plan_extension(
    model: str,
    nlp: Language,
    component: str | None,
    docs: Sequence[Doc],
    labels: Sequence[str],
    rename: Mapping[str, str],
    old: Iterable[Doc] = (),
) -> Extension:
    """Check that the new texts are compatible with a pipeline, and determine the labels to add.

    Raises a UserError if the pipeline can't be extended with these texts.

    model (str): The pipeline's path or package name.
    nlp (Language): The pipeline.
    component (str | None): The component to extend. Optional if the pipeline has a single `tener_ner`.
    docs (Sequence[Doc]): The new texts.
    labels (Sequence[str]): Labels that are annotated in the new texts. By default, all labels in the new texts that the
        component doesn't have.
    rename (Mapping[str, str]): New names for the component's existing labels.
    old (Iterable[Doc]): The pipeline's own training data (optional), for additional training on gold annotation.
    """
    pipe = find_crf_pipe(nlp, component, pipeline_name=model)
    if pipe.name in overlap_groups(nlp):
        raise UserError(
            f"{model} predicts nested entities and cannot be extended", "Train a new pipeline with all labels."
        )
    annotated = {ent.label_ for doc in docs for ent in doc.ents}
    if not annotated:
        raise UserError("no entity is annotated in the new texts", "Annotate the new labels in these texts.")
    unknown = sorted(set(rename).difference(pipe.labels))
    if unknown:
        raise UserError(
            f"{model} has no label {', '.join(unknown)} to rename", f"Use one of: {', '.join(pipe.labels)}."
        )
    if len({rename.get(label, label) for label in pipe.labels}) < len(pipe.labels):
        raise UserError(
            f"two labels of {model} would have the same name", "Choose names that are not used by other labels."
        )
    wanted = list(labels) or sorted(annotated - (set(pipe.labels) - set(rename)))
    if not wanted:
        fix = (
            "To improve the existing labels, train on these texts with `spacy train`, or pass the labels with --labels."
        )
        raise UserError(f"{model} already has all labels of the new texts: {', '.join(sorted(annotated))}", fix)
    lacking = sorted(set(wanted) - annotated)
    if lacking:
        fix = f"Use one of: {', '.join(sorted(annotated))}."
        raise UserError(f"no entity in the new texts has the label {', '.join(lacking)}", fix)
    extension = Extension(model, nlp, pipe, wanted, rename)
    other_labels = sorted(annotated.difference(wanted, extension.present))
    if other_labels:
        fix = "Add these labels to --labels, or remove them from the texts."
        raise UserError(
            f"the new texts also have labels other than {', '.join(wanted)}: {', '.join(other_labels)}", fix
        )
    old_labels = {rename.get(ent.label_, ent.label_) for doc in old for ent in doc.ents}
    unknown = sorted(old_labels.difference(wanted, extension.present))
    if unknown:
        reason = f"the texts of --with have labels that {model} doesn't have: {', '.join(unknown)}"
        raise UserError(reason, "Remove the labels, or use other texts.")
    language = detect_language(doc.text for doc in docs) if nlp.lang in ("zh", "en") else nlp.lang
    # Languages in Latin script are not distinguished, since pipelines for English are also trained on other languages.
    if (language == "zh") != (nlp.lang == "zh"):
        config = {"zh": "sample", "en": "sample_en"}.get(str(language), "multilingual")
        fix = f"Train a separate pipeline: `tener config {config}`."
        raise UserError(f"the new texts have another language ({language}) than {model} ({nlp.lang})", fix)
    return extension


def hold_out(docs: Sequence[Doc]) -> tuple[list[Doc], list[Doc]]:
    """Split the new texts into a training set and a development set.

    Duplicates are assigned to the same set, so that the development set contains no training texts. Raises a
    UserError if there are too few texts.
    """
    texts = len({text_key(doc.text) for doc in docs})
    if texts < _N_FOLDS:
        fix = f"Annotate at least {_N_FOLDS} texts, or pass a development set with --dev."
        raise UserError(f"there are too few new texts: {texts} without duplicates", fix)
    folds = assign_folds(docs, _N_FOLDS)
    training_set = [doc for doc, fold in zip(docs, folds, strict=True) if fold != 0]
    development_set = [doc for doc, fold in zip(docs, folds, strict=True) if fold == 0]
    return training_set, development_set
