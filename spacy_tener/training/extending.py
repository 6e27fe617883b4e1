"""New labels for a trained pipeline: the texts and the config of a training that keeps what the pipeline can do."""

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
from ..errors import RemedyError
from ..pipeline.entities import offsets_of, spans_of
from ..pipeline.finding import find_crf_pipe, make_doc, overlap_groups
from ..pipeline.learning.targets import ANNOTATED_LABELS
from ..pipeline.tener_ner import TenerNER
from .config_files import entries
from .overlays import fill

TRAIN, DEV = "train.spacy", "dev.spacy"
HELD_OUT = 10
"""Number of parts of the new texts. One of them is not learned: it scores the model."""
RATE = 0.3
"""Share of the learning rate that the pipeline was trained with. With more, it forgets more than it gains."""


@dataclass(frozen=True)
class Extension:
    """Labels that a trained pipeline is to learn.

    model (str): Name of the pipeline, as users name it.
    pipe (TenerNER): Its component.
    labels (Sequence[str]): Labels that the new texts are annotated for.
    rename (Mapping[str, str]): Other names of labels that the component has.
    """

    model: str
    nlp: Language
    pipe: TenerNER
    labels: Sequence[str]
    rename: Mapping[str, str]

    @property
    def present(self) -> list[str]:
        """The labels that the component has, by the names that they get."""
        return [self.rename.get(label, label) for label in self.pipe.labels]

    def training_docs(self, new: Iterable[Doc], old: Iterable[Doc]) -> Iterator[Doc]:
        """Yield the texts to learn from, each with the labels that it is annotated for."""
        new, old = list(new), list(old)
        for doc in new:
            doc.user_data[ANNOTATED_LABELS] = list(self.labels)
        # The new texts come as often as the old ones.
        yield from new * max(1, len(old) // len(new))
        has_new = any(ent.label_ in self.labels for doc in old for ent in doc.ents)
        for doc in old:
            self._rename(doc)
            if not has_new:
                doc.user_data[ANNOTATED_LABELS] = [label for label in self.present if label not in self.labels]
            yield doc

    def development_docs(self, docs: Sequence[Doc]) -> Iterator[Doc]:
        """Yield annotated texts with what the pipeline finds beside the annotation."""
        copies = []
        for doc in docs:
            copy = make_doc(self.nlp, doc.text)
            copy.set_ents(filter_spans(spans_of(copy, map(offsets_of, doc.ents))), default="missing")
            copies.append(copy)
        for doc, found in zip(docs, self.nlp.pipe(copies), strict=True):
            names = ((ent, self.rename.get(ent.label_, ent.label_)) for ent in found.ents)
            beside = [(ent.start_char, ent.end_char, name) for ent, name in names if name not in self.labels]
            # Gold first: of two entities of one length, the first one stays.
            doc.set_ents(filter_spans([*doc.ents, *spans_of(doc, beside)]))
            yield doc

    def _rename(self, doc: Doc) -> None:
        """Rename the labels of a text's entities. One whose label is split is without annotation from now on."""
        entities: list[Span] = []
        missing: list[Span] = []
        for ent in doc.ents:
            name = self.rename.get(ent.label_, ent.label_)
            is_split = ent.label_ in self.rename and name in self.labels
            (missing if is_split else entities).append(Span(doc, ent.start, ent.end, name))
        doc.set_ents(entities, missing=missing, default="unmodified")

    def config(self, output: Path, steps: int) -> Config:
        """Return the config of the training."""
        config = self.nlp.config.copy()
        names = list(self.nlp.component_names)
        learning = {self.pipe.name, *_upstream(self.nlp, self.pipe.name)}
        learning -= {*config["training"]["frozen_components"]} - {self.pipe.name}
        config["components"] = {name: {"source": self.model} for name in names}
        for name in names:
            if name not in learning and learning.intersection(_upstream(self.nlp, name)):
                # What it listens to goes on learning: it keeps that as it is.
                config["components"][name]["replace_listeners"] = _listeners(self.nlp.config["components"][name])
        config["corpora"] = {name: _corpus(f"${{paths.{name}}}") for name in ("train", "dev")}
        config["paths"] = {**config["paths"], "train": str(output / TRAIN), "dev": str(output / DEV)}
        # What is not set here stays: the pipeline reads texts, and learns, as it did in its own training.
        training = config["training"]
        training.update(train_corpus="corpora.train", dev_corpus="corpora.dev")
        training.update(max_steps=steps, max_epochs=0, patience=0, eval_frequency=steps)
        # Scores of other components, which are frozen, are left out.
        training["score_weights"] = dict.fromkeys(training["score_weights"]) | {
            "ents_f": 1.0,
            "ents_p": 0.0,
            "ents_r": 0.0,
        }
        training["frozen_components"] = [name for name in names if name not in learning]
        annotating = training["annotating_components"]
        training["annotating_components"] = [name for name in names if name in annotating]
        _slow_down(training["optimizer"], steps)
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
    return {"@readers": "spacy.Corpus.v1", "path": path, "gold_preproc": False, "max_length": 0, "limit": 0}


def _slow_down(optimizer: dict[str, Any], steps: int) -> None:
    """Let an optimizer go through its schedule in some steps, at a share of its learning rate."""
    schedule = optimizer.get("learn_rate", 0.001)
    if not isinstance(schedule, dict):
        optimizer["learn_rate"] = RATE * schedule
        return
    if "total_steps" in schedule:
        schedule["total_steps"] = steps
    for name in ("max_rate", "initial_rate"):
        if name in schedule:
            schedule[name] *= RATE


def _upstream(nlp: Language, name: str) -> list[str]:
    """Return the components that one listens to."""
    return [other for other, pipe in nlp.components if name in getattr(pipe, "listening_components", ())]


def _listeners(component: Mapping[str, Any]) -> list[str]:
    """Return the places of the listeners in a component's config, as `model.tok2vec`."""
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
    """Check new texts against a pipeline, and return what it is to learn from them.

    labels (Sequence[str]): Labels that the texts are annotated for; by default those that the pipeline lacks.
    old (Iterable[Doc]): The texts that it was trained on, if they are learned too.
    """
    pipe = find_crf_pipe(nlp, component, pipeline_name=model)
    if pipe.name in overlap_groups(nlp):
        raise RemedyError(
            f"{model} finds entities within entities, and cannot be extended", "Train it again with all labels."
        )
    annotated = {ent.label_ for doc in docs for ent in doc.ents}
    if not annotated:
        raise RemedyError("no entity is annotated in the new texts", "Annotate the new label there.")
    unknown = sorted(set(rename).difference(pipe.labels))
    if unknown:
        raise RemedyError(f"{model} has no label {', '.join(unknown)} to rename", f"It has: {', '.join(pipe.labels)}.")
    if len({rename.get(label, label) for label in pipe.labels}) < len(pipe.labels):
        raise RemedyError(f"two labels of {model} would have the same name", "Choose names that are not labels yet.")
    wanted = list(labels) or sorted(annotated - (set(pipe.labels) - set(rename)))
    if not wanted:
        remedy = "Train on them by `spacy train`, or name labels by --labels."
        raise RemedyError(f"{model} has all labels of the new texts: {', '.join(sorted(annotated))}", remedy)
    lacking = sorted(set(wanted) - annotated)
    if lacking:
        remedy = f"They have: {', '.join(sorted(annotated))}."
        raise RemedyError(f"no entity in the new texts has the label {', '.join(lacking)}", remedy)
    extension = Extension(model, nlp, pipe, wanted, rename)
    beside = sorted(annotated.difference(wanted, extension.present))
    if beside:
        remedy = "Name them by --labels too, or take them out of the texts."
        raise RemedyError(f"the new texts have labels beside {', '.join(wanted)}: {', '.join(beside)}", remedy)
    of_old = {rename.get(ent.label_, ent.label_) for doc in old for ent in doc.ents}
    unknown = sorted(of_old.difference(wanted, extension.present))
    if unknown:
        reason = f"the texts of --with have labels that {model} has not: {', '.join(unknown)}"
        raise RemedyError(reason, "Take them out, or name others.")
    language = detect_language(doc.text for doc in docs) if nlp.lang in ("zh", "en") else nlp.lang
    if language != nlp.lang:
        remedy = f"Train another pipeline for them: `tener config sample{'_en' * (language == 'en')}`."
        raise RemedyError(f"the new texts are in another language ({language}) than {model} ({nlp.lang})", remedy)
    return extension


def hold_out(docs: Sequence[Doc]) -> tuple[list[Doc], list[Doc]]:
    """Divide new texts into those to learn from and those by which the model is scored. Equal texts stay together."""
    texts = len({text_key(doc.text) for doc in docs})
    if texts < HELD_OUT:
        remedy = f"Annotate at least {HELD_OUT}, or name others by --dev."
        raise RemedyError(f"there are too few new texts: {texts} different ones", remedy)
    folds = assign_folds(docs, HELD_OUT)
    parts = [[doc for doc, fold in zip(docs, folds, strict=True) if (fold == 0) == held] for held in (False, True)]
    return parts[0], parts[1]
