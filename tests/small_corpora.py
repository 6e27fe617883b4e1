"""Small annotated corpora, and pipelines of rules, which find a pattern wherever it stands."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

Entities = Sequence[tuple[int, int, str]]
blank = cache(spacy.blank)
"""Of all Docs of a language: making it takes longer than a text."""


def annotated(text: str, entities: Entities = (), words: Sequence[str] | None = None, lang: str = "zh") -> Doc:
    """Return a Doc that is annotated throughout. words: Its tokens, in place of those of the language."""
    nlp = blank(lang)
    doc = nlp.make_doc(text) if words is None else Doc(nlp.vocab, words=words, spaces=[False] * len(words))
    doc.set_ents([doc.char_span(start, end, label) for start, end, label in entities], default="outside")
    return doc


def save_docs(path: Path, *docs: Doc) -> Path:
    """Write a .spacy file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    DocBin(docs=docs).to_disk(path)
    return path


def save_corpus(path: Path, texts: Sequence[tuple[str, Entities]]) -> Path:
    """Write a .spacy file of annotated texts."""
    return save_docs(path, *(annotated(text, entities) for text, entities in texts))


def ruled(lang: str = "zh", **patterns: str) -> Language:
    """Return a pipeline that finds one pattern of each label."""
    nlp = spacy.blank(lang)
    add_rules(nlp, **patterns)
    return nlp


def add_rules(nlp: Language, *, config: dict[str, Any] | None = None, before: str = "", **patterns: str) -> None:
    """Add rules to the end of a pipeline, or before a component. Their name is that of their labels."""
    ruler: Any = nlp.add_pipe("entity_ruler", "-".join(patterns), config=config or {}, before=before or None)
    ruler.add_patterns([{"label": label, "pattern": pattern} for label, pattern in patterns.items()])
