"""Pages of spaCy's visualizer with what a pipeline finds, as `spacy evaluate --displacy-path` writes them."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from spacy import displacy
from spacy.language import Language

from ..files import write_text
from ..pages import displacy_options
from ..pipeline.finding import entity_labels, overlap_groups


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
    pages: list[tuple[str, str, dict[str, Any]]] = [("entities.html", "ent", options)]
    pages += [("spans.html", "span", {**options, "spans_key": key}) for key in overlap_groups(nlp).values()]
    if any(nlp.get_pipe_meta(name).factory == "parser" for name in nlp.pipe_names):
        pages.append(("parses.html", "dep", {"compact": True}))
    for name, style, style_options in pages:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"\[W(006|117)\]")  # a text without entities
            html = displacy.render(docs, style=style, page=True, options=style_options, jupyter=False)
        write_text(folder / name, html)
    return [folder / name for name, *_ in pages]
