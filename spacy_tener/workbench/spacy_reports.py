"""What spaCy's own reports need: the one on training data, which knows `ner` only, and the pages of displacy."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

from spacy import displacy
from spacy.attrs import ENT_IOB
from spacy.language import Language
from spacy.training.corpus import walk_corpus
from thinc.api import Config

from ..errors import RemedyError
from ..files import write_text
from ..pages import displacy_options
from ..pipeline.finding import entity_labels, overlap_groups
from ..pipeline.units import MISSING
from .corpus.docs import open_docbin

ENTITIES_PAGE: Final = "entities.html"


def count_missing(config: Config) -> Iterator[tuple[str, int, int]]:
    """Yield the corpora with tokens that are not annotated: path, number of these tokens, and of all.

    Refuses corpora that cannot be read, or are empty: spaCy's errors do not name the file.
    """
    for corpus in config.get("corpora", {}).values():
        path = corpus.get("path")
        if corpus.get("@readers") == "spacy.Corpus.v1" and isinstance(path, str):
            files = [open_docbin(file) for file in walk_corpus(path, ".spacy")]
            tags = [doc[:, file.attrs.index(ENT_IOB)] for file in files if ENT_IOB in file.attrs for doc in file.tokens]
            if not (n_tokens := sum(len(doc) for file in files for doc in file.tokens)):
                raise RemedyError(f"{path}: there are no Docs in .spacy files", "Make them with `spacy tener convert`.")
            if n_missing := n_tokens - sum(int((tag != MISSING).sum()) for tag in tags):
                yield path, n_missing, n_tokens


def with_ner(config: Config, load: Callable[[str], Language]) -> Config:
    """Return a config with `ner` in the place of each `tener_ner`: all that the report asks of it is its factory.

    load (Callable[[str], Language]): Loads a pipeline that a component is sourced from.
    """
    for name, component in config.get("components", {}).items():
        if _factory(name, component, load) == "tener_ner":
            config["components"][name] = {"factory": "ner"}
            config.get("initialize", {}).get("components", {}).pop(name, None)
    return config


def _factory(name: str, component: Mapping[str, Any], load: Callable[[str], Language]) -> str:
    if source := component.get("source"):
        return load(source).get_pipe_meta(component.get("component", name)).factory
    return str(component.get("factory"))


def write_displacy(nlp: Language, texts: Iterable[str], folder: Path, *, title: str, limit: int) -> list[Path]:
    """Write a page of the entities of the first texts, one of those within others, and one of parses, as far as the
    pipeline finds these. Labels have the colours of this package's pages.

    RETURNS (list[Path]): The pages.
    """
    docs = list(nlp.pipe(islice(texts, limit)))
    if not docs:
        return []
    docs[0].user_data["title"] = title
    options = displacy_options(entity_labels(nlp))
    pages: list[tuple[str, str, dict[str, Any]]] = [(ENTITIES_PAGE, "ent", options)]
    pages += [("spans.html", "span", {**options, "spans_key": key}) for key in overlap_groups(nlp).values()]
    if any(nlp.get_pipe_meta(name).factory == "parser" for name in nlp.pipe_names):
        pages.append(("parses.html", "dep", {"compact": True}))
    for name, style, style_options in pages:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\[W(006|117)\]")  # a text without entities
            html = displacy.render(docs, style=style, page=True, options=style_options, jupyter=False)
        write_text(folder / name, html)
    return [folder / name for name, *_ in pages]
