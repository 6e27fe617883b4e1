"""The components of a pipeline that find entities, and those of `tener_ner`'s kind."""

from __future__ import annotations

from spacy.language import Language

from ..errors import RemedyError
from .confidence.pipe import ConfidentPipe


def entity_finders(nlp: Language) -> list[str]:
    """The names of all components that say they set `doc.ents`, of whatever kind."""
    return [name for name in nlp.pipe_names if "doc.ents" in nlp.get_pipe_meta(name).assigns]


def recognisers(nlp: Language) -> dict[str, ConfidentPipe]:
    """All of them by their names, in the order of the pipeline."""
    return {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, ConfidentPipe)}


def find_recogniser(nlp: Language, name: str | None = None, *, what: str = "The pipeline") -> ConfidentPipe:
    """One of them. name: the component's; None for the first. what: what a message calls the pipeline."""
    found = recognisers(nlp)
    if found and name is None:
        return next(iter(found.values()))
    if name in found:
        return found[name]
    wanted = "tener_ner" if name is None else f"tener_ner named '{name}'"
    has = ", ".join(nlp.pipe_names) or "none"
    remedy = f"Name {' or '.join(found)}." if found else "Name a pipeline trained with one."
    raise RemedyError(f"{what} has no {wanted}", f"Its components are: {has}. {remedy}")
