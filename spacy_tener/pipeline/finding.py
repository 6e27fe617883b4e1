"""Finding a pipeline's `tener_ner`, and other components that find entities."""

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
from ..errors import RemedyError
from ..features.word_lists import ATTRIBUTE
from .batch_decoding import Probabilities
from .decoding import Decoding
from .entities import FoundEntity, read_entities
from .entity_lists import EntityLists
from .tener_ner import TenerNER
from .units import BEGIN, INSIDE, CharacterView, DocView
from .windows import Window

SCORES_KEY = "tener_found"
"""Group of `doc.spans` for the probabilities of components without a `spans_key`, where these are asked for."""


def entity_finders(nlp: Language) -> list[str]:
    """Return the names of all components that assign `doc.ents`."""
    return [name for name in nlp.pipe_names if "doc.ents" in nlp.get_pipe_meta(name).assigns]


def span_finders(nlp: Language) -> dict[str, SpanCategorizer]:
    """Return all `spancat` components by name. Their entities are in `doc.spans`, and may overlap."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, SpanCategorizer)}


def overlap_groups(nlp: Language) -> dict[str, str]:
    """Return the components whose entities may overlap, each with the group of `doc.spans` that has all of them: each
    `spancat`, and each `tener_ner` that finds entities within entities."""
    groups = {name: pipe.key for name, pipe in span_finders(nlp).items()}
    return groups | {name: pipe.overlap_key or SCORES_KEY for name, pipe in crf_pipes(nlp).items() if pipe.depth > 1}


def check_finders(nlp: Language, pipeline_name: str = "The pipeline") -> None:
    """Refuse a pipeline without a component that finds entities. what: Its name in the message."""
    if not entity_finders(nlp) and not span_finders(nlp):
        remedy = _suggest_enabling(nlp) or "Name one with a trained tener_ner."
        raise RemedyError(f"{pipeline_name} has no component that finds entities", remedy)


def known_labels(nlp: Language) -> set[str] | None:
    """Return the labels that a pipeline can find; None if a component that assigns `doc.ents` lists no labels."""
    finders, labels = entity_finders(nlp), nlp.pipe_labels
    if not finders or any(name not in labels for name in finders):
        return None
    return {label for name in finders for label in labels[name]}


def entity_labels(nlp: Language) -> list[str]:
    """Return the labels of all components that find entities: first those of each `tener_ner`, in its order. In this
    order, labels get their colours on pages."""
    finders = dict.fromkeys((*crf_pipes(nlp), *entity_finders(nlp), *span_finders(nlp)))
    return list(dict.fromkeys(label for name in finders for label in nlp.pipe_labels.get(name, ())))


def entity_lists(nlp: Language) -> dict[str, EntityLists]:
    """Return all `entity_lists` components by name, in the order of the pipeline."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, EntityLists)}


def crf_pipes(nlp: Language) -> dict[str, TenerNER]:
    """Return all `tener_ner` components by name, in the order of the pipeline."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, TenerNER)}


def find_crf_pipe(nlp: Language, name: str | None = None, *, pipeline_name: str = "The pipeline") -> TenerNER:
    """Return a `tener_ner`. name: The component's; None for the first. what: The pipeline's name in a message."""
    found = crf_pipes(nlp)
    if found and name is None:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    wanted = "tener_ner" if name is None else f"tener_ner named '{name}'"
    has = ", ".join(nlp.pipe_names) or "none"
    remedy = f"Name {' or '.join(found)}." if found else _suggest_enabling(nlp) or "Name a pipeline trained with one."
    raise RemedyError(f"{pipeline_name} has no {wanted}", f"Its components are: {has}. {remedy}")


def _suggest_enabling(nlp: Language) -> str:
    """Return the remedy for a pipeline whose `tener_ner` is disabled; an empty one if it has none."""
    names = [name for name, pipe in nlp.components if isinstance(pipe, TenerNER) and name in nlp.disabled]
    return f"Enable {' or '.join(names)}, which is disabled, and save the pipeline." if names else ""


@dataclass(frozen=True)
class TextWithWords:
    """A text with a list of words that applies to this text alone.

    words (Mapping[str, str]): The words that are entities in the text, with their labels.
    """

    text: str
    words: Mapping[str, str]

    def __len__(self) -> int:
        return len(self.text)


InputText = str | TextWithWords


def make_doc(nlp: Language, text: InputText) -> Doc:
    """Tokenize a text of any length. `nlp.make_doc` refuses texts of more than `nlp.max_length` characters.

    If the text has words of its own, they are matched by the pipeline's `entity_lists`, or here if it has none.
    """
    if isinstance(text, str):
        return nlp.tokenizer(text)
    doc = nlp.tokenizer(text.text)
    setattr(doc._, ATTRIBUTE, dict(text.words))
    return doc if entity_lists(nlp) else EntityLists(nlp.vocab)(doc)


def components_before(nlp: Language, pipe: object) -> tuple[str, ...]:
    """Return the names of the components before one, whose own name is another once another pipeline sources it."""
    return tuple(itertools.takewhile(lambda name: nlp.get_pipe(name) is not pipe, nlp.pipe_names))


def probability_config(nlp: Language) -> dict[str, dict[str, Any]]:
    """Return the arguments of components that write probabilities: those without a `spans_key` get one."""
    return {name: {"spans_key": SCORES_KEY} for name in crf_pipes(nlp)}


def run_components(nlp: Language, docs: list[Doc], names: Sequence[str]) -> list[Doc]:
    """Run some components of a pipeline over Docs, as one batch."""
    if not names:
        return docs
    disabled = [name for name in nlp.pipe_names if name not in names]
    # The whole batch at once, since a listener of a shared component keeps the last batch only.
    size, arguments = max(len(docs), 1), probability_config(nlp)
    return list(nlp.pipe(docs, batch_size=size, disable=disabled, component_cfg=arguments))


def found_entities(nlp: Language, docs: Iterable[Doc], *, with_spancat: bool = True) -> list[list[FoundEntity]]:
    """Return the entities of Docs that a pipeline has processed, nested entities included.

    with_spancat (bool): Include the spans of each `spancat`, which may overlap.
    """
    keys = [pipe.key for pipe in span_finders(nlp).values()] if with_spancat else []
    return [[FoundEntity(*entity[:4]) for entity in read_entities(doc, keys)] for doc in docs]


def describe_component(nlp: Language, component: str, view: str) -> dict[str, str]:
    """Return the pipeline's language, name and version, the component and its view.

    spaCy calls a pipeline that was never packaged `pipeline 0.0.0`: its name is where it was loaded from.
    """
    meta = {name: str(nlp.meta.get(name) or "") for name in ("lang", "name", "version")}
    if (meta["name"], meta["version"]) == ("pipeline", "0.0.0"):
        meta.update(name=str(nlp.path or ""), version="")
    return {**meta, "component": component, "view": view}


@dataclass(frozen=True)
class PipelineNER:
    """A `tener_ner` in its pipeline, with the components that texts and single windows pass before it.

    before (tuple[str, ...]): The names of the components that come before it.
    shared (tuple[str, ...]): Those of them whose vectors it listens to.
    """

    nlp: Language
    ner: TenerNER
    before: tuple[str, ...]
    shared: tuple[str, ...]

    @classmethod
    def of(cls, nlp: Language, name: str | None = None) -> PipelineNER:
        """Find the component. name: Its name; None for the first `tener_ner` of the pipeline."""
        ner = find_crf_pipe(nlp, name)
        before = components_before(nlp, ner)
        upstream = {node.upstream_name for node in ner.model.walk() if hasattr(node, "upstream_name")}
        sources = [source for source in before if hasattr(nlp.get_pipe(source), "find_listeners")]
        return cls(nlp, ner, before, tuple(source for source in sources if upstream & {source, "*"}))

    @property
    def models(self) -> list[Model[Any, Any]]:
        """Models that the entities come from."""
        pipes: list[Any] = [self.ner, *map(self.nlp.get_pipe, self.shared)]
        return [pipe.model for pipe in pipes]

    def describe(self) -> dict[str, str]:
        return describe_component(self.nlp, self.ner.name, self.ner.settings.view)

    def prepare(self, texts: Iterable[InputText | Doc]) -> list[Doc]:
        """Return texts as Docs that the components before have processed. Docs keep their tokens and are copied."""
        docs = [text.copy() if isinstance(text, Doc) else make_doc(self.nlp, text) for text in texts]
        return run_components(self.nlp, docs, self.before)

    def complete(self, decodings: Sequence[Decoding]) -> list[Doc]:
        """Write to the Docs of decodings what the component and those after it find, without running its model again.

        Ask the decodings before: later components may merge tokens.
        """
        name, arguments = self.nlp.pipe_names[len(self.before)], probability_config(self.nlp)
        self.ner.annotate(decodings, **arguments.get(name, {}))
        after = self.nlp.pipe_names[len(self.before) + 1 :]
        return run_components(self.nlp, [decoding.doc for decoding in decodings], after)

    def window_doc(self, view: DocView, window: Window) -> Doc:
        """Return a window of a Doc with its units as tokens, ready for the model, and the entities that the Doc has."""
        doc = view.slice_doc(window.start, window.end)
        if doc is view.doc:
            return doc
        if isinstance(view, CharacterView) and view.doc.has_annotation(ENT_IOB):
            units = view.units()
            iob, labels = units.iob[window.start : window.end], units.label[window.start : window.end]
            iob[0] = BEGIN if iob[0] == INSIDE else iob[0]
            annotation: Any = np.stack((iob.astype(np.uint64), labels), axis=1)
            doc.from_array([ENT_IOB, ENT_TYPE], annotation)
        return run_components(self.nlp, [doc], self.shared)[0]

    def probabilities(self, docs: Iterable[Doc], spans: Sequence[tuple[int, int, str]]) -> Probabilities:
        """Return the probabilities of the same spans of tokens in each of some Docs whose tokens are units.

        *Shape:* (docs, spans)
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
