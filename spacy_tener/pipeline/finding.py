"""Find a pipeline's entity recognizers, run some of its components, and return the predicted entities.

The CLI, the web service, and the tools for annotation and explanation use this module with any spaCy pipeline.
`PipelineNER` combines a `tener_ner` with the components that must run before it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from spacy.attrs import ENT_IOB, ENT_TYPE
from spacy.language import Language
from spacy.pipeline import SpanCategorizer
from spacy.tokens import Doc
from thinc.api import Model

from ..crf.marginals import EntitySpans
from ..errors import UserError
from ..features.word_lists import ATTRIBUTE
from .batch_decoding import Probabilities
from .decoding import Decoding
from .entities import FoundEntity, read_entities
from .entity_lists import EntityLists
from .tener_ner import TenerNER
from .units import BEGIN, INSIDE, CharacterView, DocView
from .windows import Window

# Key in `doc.spans` for entities with probabilities if the component's setting `spans_key` is None.
SCORES_KEY = "tener_found"


def entity_finders(nlp: Language) -> list[str]:
    """Return the names of all components that assign `doc.ents`, according to their metadata."""
    return [name for name in nlp.pipe_names if "doc.ents" in nlp.get_pipe_meta(name).assigns]


def spancat_pipes(nlp: Language) -> dict[str, SpanCategorizer]:
    """Return all `spancat` components by name. Their entities are in `doc.spans` and can overlap."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, SpanCategorizer)}


def overlap_groups(nlp: Language) -> dict[str, str]:
    """Return a span group key for each component whose entities can overlap, by component name.

    These components are every `spancat`, and every `tener_ner` that predicts nested entities.
    """
    groups = {name: pipe.key for name, pipe in spancat_pipes(nlp).items()}
    return groups | {name: pipe.nested_key or SCORES_KEY for name, pipe in crf_pipes(nlp).items() if pipe.depth > 1}


def check_finders(nlp: Language, pipeline_name: str = "The pipeline") -> None:
    """Raise an error if no component in the pipeline predicts entities.

    pipeline_name (str): The pipeline's name in the error message.
    """
    if not entity_finders(nlp) and not spancat_pipes(nlp):
        enabling = _suggest_enabling(nlp)
        enabled = "enabled " if enabling else ""
        fix = enabling or "Use a pipeline with a trained tener_ner."
        raise UserError(f"{pipeline_name} has no {enabled}component that predicts entities", fix)


def known_labels(nlp: Language) -> set[str] | None:
    """Return the labels that a pipeline can predict for `doc.ents`, or None if they are unknown.

    The labels are unknown if no component assigns `doc.ents`, or if such a component has no attribute `labels`.
    """
    finders, labels = entity_finders(nlp), nlp.pipe_labels
    if not finders or any(name not in labels for name in finders):
        return None
    return {label for name in finders for label in labels[name]}


def entity_labels(nlp: Language) -> list[str]:
    """Return the labels of all components that predict entities, beginning with `tener_ner`.

    HTML pages assign colours to labels in this order.
    """
    finders = dict.fromkeys((*crf_pipes(nlp), *entity_finders(nlp), *spancat_pipes(nlp)))
    return list(dict.fromkeys(label for name in finders for label in nlp.pipe_labels.get(name, ())))


def entity_lists(nlp: Language) -> dict[str, EntityLists]:
    """Return all `entity_lists` components by name, in pipeline order."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, EntityLists)}


def crf_pipes(nlp: Language) -> dict[str, TenerNER]:
    """Return all `tener_ner` components by name, in pipeline order."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, TenerNER)}


def find_crf_pipe(nlp: Language, name: str | None = None, *, pipeline_name: str = "The pipeline") -> TenerNER:
    """Return a `tener_ner` component. Raise an error if the pipeline does not contain it.

    name (str | None): The component's name. If None, the first `tener_ner` is returned.
    pipeline_name (str): The pipeline's name in the error message.
    """
    found = crf_pipes(nlp)
    if found and name is None:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    wanted = "tener_ner" if name is None else f"tener_ner named '{name}'"
    has = ", ".join(nlp.pipe_names) or "none"
    fix = _suggest_enabling(nlp) or "Use a pipeline with a trained tener_ner."
    if found:
        fix = f"Use the name of a tener_ner: {' or '.join(found)}."
    raise UserError(f"{pipeline_name} has no {wanted}", f"Its components are: {has}. {fix}")


def _suggest_enabling(nlp: Language) -> str:
    """Return a hint on how to enable a disabled `tener_ner`, for error messages.

    If no `tener_ner` is disabled, return an empty string.
    """
    names = [name for name, pipe in nlp.components if isinstance(pipe, TenerNER) and name in nlp.disabled]
    return f"Enable {' or '.join(names)} with nlp.enable_pipe, and save the pipeline." if names else ""


@dataclass(frozen=True)
class TextWithWords:
    """A text with words that are labelled as entities in this text only.

    words (Mapping[str, str]): The words, with their labels.
    """

    text: str
    words: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.text)


InputText = str | TextWithWords


def make_doc(nlp: Language, text: InputText) -> Doc:
    """Tokenize a text of any length. In contrast, `nlp.make_doc` is limited to `nlp.max_length` characters.

    The words of a `TextWithWords` are matched when the component `entity_lists` runs. If the pipeline does not have
    this component, the words are matched here.
    """
    if isinstance(text, str):
        return nlp.tokenizer(text)
    doc = nlp.tokenizer(text.text)
    setattr(doc._, ATTRIBUTE, dict(text.words))
    return doc if entity_lists(nlp) else EntityLists(nlp.vocab)(doc)


def components_before(nlp: Language, pipe: object) -> tuple[str, ...]:
    """Return the names of the components before `pipe`.

    Components are compared by identity. `pipe.name` can be wrong: if another pipeline sources the component under a new
    name, spaCy also changes `pipe.name` for this pipeline.
    """
    return tuple(itertools.takewhile(lambda name: nlp.get_pipe(name) is not pipe, nlp.pipe_names))


def probability_config(nlp: Language) -> dict[str, dict[str, Any]]:
    """Return a `component_cfg` for `nlp.pipe` that makes every `tener_ner` write probabilities to `doc.spans`."""
    return {name: {"spans_key": SCORES_KEY} for name in crf_pipes(nlp)}


def run_components(nlp: Language, docs: list[Doc], names: Sequence[str]) -> list[Doc]:
    """Run the components with the given names on Docs, as a single batch."""
    if not names:
        return docs
    disabled = [name for name in nlp.pipe_names if name not in names]
    # Use a single batch, because a listener only stores the output of the shared component for its last batch.
    size, arguments = max(len(docs), 1), probability_config(nlp)
    return list(nlp.pipe(docs, batch_size=size, disable=disabled, component_cfg=arguments))


def found_entities(nlp: Language, docs: Iterable[Doc], *, with_spancat: bool = True) -> list[list[FoundEntity]]:
    """Return all entities in Docs that a pipeline has processed, including nested entities.

    with_spancat (bool): Whether to include the spans of `spancat` components, which can overlap.
    """
    keys = [pipe.key for pipe in spancat_pipes(nlp).values()] if with_spancat else []
    return [[FoundEntity(*entity[:4]) for entity in read_entities(doc, keys)] for doc in docs]


def is_uncalibrated(nlp: Language) -> bool:
    """Return whether a pipeline has a `tener_ner` whose probabilities were not calibrated by `tener calibrate`."""
    return any(pipe.temperature == 1.0 for pipe in crf_pipes(nlp).values())


def describe_component(nlp: Language, component: str, view: str) -> dict[str, str]:
    """Return metadata for reports: the pipeline's language, name and version, and the component's name and `view`.

    The value of `probabilities` is "uncalibrated" if they were not calibrated by `tener calibrate`.

    spaCy gives unpackaged pipelines the name "pipeline" and the version "0.0.0". For such a pipeline, return its path
    as the name, and an empty version.
    """
    meta = {name: str(nlp.meta.get(name) or "") for name in ("lang", "name", "version")}
    if (meta["name"], meta["version"]) == ("pipeline", "0.0.0"):
        meta.update(name=str(nlp.path or ""), version="")
    probabilities = "uncalibrated" if is_uncalibrated(nlp) else "calibrated"
    return {**meta, "component": component, "view": view, "probabilities": probabilities}


@dataclass(frozen=True)
class PipelineNER:
    """A `tener_ner` component, its pipeline, and the components that must run before it.

    nlp (Language): The pipeline.
    ner (TenerNER): The `tener_ner` component.
    before (tuple[str, ...]): Names of all components before `ner`.
    shared (tuple[str, ...]): Names of the shared components (such as `tok2vec`) that `ner` listens to.
    """

    nlp: Language
    ner: TenerNER
    before: tuple[str, ...]
    shared: tuple[str, ...]

    @classmethod
    def of(cls, nlp: Language, name: str | None = None) -> PipelineNER:
        """Find a `tener_ner` in a pipeline, and create a `PipelineNER` for it.

        name (str | None): The component's name. If None, the first `tener_ner` is used.
        """
        ner = find_crf_pipe(nlp, name)
        before = components_before(nlp, ner)
        upstream = {node.upstream_name for node in ner.model.walk() if hasattr(node, "upstream_name")}
        sources = [source for source in before if hasattr(nlp.get_pipe(source), "find_listeners")]
        return cls(nlp, ner, before, tuple(source for source in sources if upstream & {source, "*"}))

    @property
    def models(self) -> list[Model[Any, Any]]:
        """The models that are used in prediction: one for `ner`, and one for each shared component."""
        pipes: list[Any] = [self.ner, *map(self.nlp.get_pipe, self.shared)]
        return [pipe.model for pipe in pipes]

    def describe(self) -> dict[str, str]:
        """Return metadata for reports, see `describe_component`."""
        return describe_component(self.nlp, self.ner.name, self.ner.settings.view)

    def prepare(self, texts: Iterable[InputText | Doc]) -> list[Doc]:
        """Convert texts to Docs, and run the components before `ner`.

        If the input is a Doc, a copy is processed. The copy has the same tokens.
        """
        docs = [text.copy() if isinstance(text, Doc) else make_doc(self.nlp, text) for text in texts]
        return run_components(self.nlp, docs, self.before)

    def complete(self, decodings: Sequence[Decoding]) -> list[Doc]:
        """Write decoded entities to their Docs, and run the components after `ner`. The model does not run again.

        Get all results from the decodings before calling this method, because later components may merge tokens.

        decodings (Sequence[Decoding]): The decodings that `TenerNER.decode` returned.
        """
        name, arguments = self.nlp.pipe_names[len(self.before)], probability_config(self.nlp)
        self.ner.annotate(decodings, **arguments.get(name, {}))
        after = self.nlp.pipe_names[len(self.before) + 1 :]
        return run_components(self.nlp, [decoding.doc for decoding in decodings], after)

    def window_doc(self, view: DocView, window: Window) -> Doc:
        """Convert a window to a Doc that can be passed to `TenerNER.decode`.

        The Doc has a token for each unit in the window (token or character) and keeps existing entities. If the window
        covers all tokens of a Doc, the original Doc is returned.
        """
        doc = view.slice_doc(window.start, window.end)
        if doc is view.doc:
            return doc
        if isinstance(view, CharacterView) and view.doc.has_annotation(ENT_IOB):
            units = view.units()
            iob, labels = units.iob[window.start : window.end], units.label[window.start : window.end]
            # If the window starts inside an entity, its first unit becomes the start of an entity.
            iob[0] = BEGIN if iob[0] == INSIDE else iob[0]
            annotation: Any = np.stack((iob.astype(np.uint64), labels), axis=1)
            doc.from_array([ENT_IOB, ENT_TYPE], annotation)
        return run_components(self.nlp, [doc], self.shared)[0]

    def probabilities(self, docs: Iterable[Doc], spans: Sequence[tuple[int, int, str]]) -> Probabilities:
        """Return the probabilities of the same spans in several Docs, for example in variants of a text.

        docs (Iterable[Doc]): The Docs. Their tokens must be units, as in the Docs that `window_doc` returns.
        spans (Sequence[tuple[int, int, str]]): Start token, end token and label of each span.
        RETURNS (Probabilities): Probability of each span in each Doc. *Shape:* (docs, spans)
        """
        labels = self.ner.labels
        rows = np.array([(start, end, labels.index(label)) for start, end, label in spans], dtype=np.int64)
        columns = rows.reshape(-1, 3).T
        probabilities = [np.empty((0, len(spans)))]
        decodings = self.ner.decode(run_components(self.nlp, list(docs), self.shared))
        for batch, group in itertools.groupby(decodings, lambda decoding: decoding.batch):
            n_texts = len(list(group))
            texts = np.repeat(np.arange(n_texts), len(spans))
            repeated = EntitySpans(texts, *(np.tile(column, n_texts) for column in columns))
            probabilities.append(batch.probabilities(repeated).reshape(n_texts, len(spans)))
        return np.concatenate(probabilities)
