"""Small annotated corpora, and rule-based pipelines that find fixed strings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

Entities = Sequence[tuple[int, int, str]]
# Blank pipelines are cached, since creating one takes longer than a text.
blank = cache(spacy.blank)


def annotated(text: str, entities: Entities = (), words: Sequence[str] | None = None, lang: str = "zh") -> Doc:
    """Return an annotated Doc.

    words: Tokens. By default, the tokenizer of the language is used.
    """
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
    """Write annotated texts to a .spacy file."""
    return save_docs(path, *(annotated(text, entities) for text, entities in texts))


def rule_pipeline(lang: str = "zh", **patterns: str) -> Language:
    """Return a pipeline with one rule for each label."""
    nlp = spacy.blank(lang)
    add_rules(nlp, **patterns)
    return nlp


def add_rules(nlp: Language, *, config: dict[str, Any] | None = None, before: str = "", **patterns: str) -> None:
    """Add rules to the end of a pipeline, or before a component. The component is named after the labels."""
    ruler: Any = nlp.add_pipe("entity_ruler", "-".join(patterns), config=config or {}, before=before or None)
    ruler.add_patterns([{"label": label, "pattern": pattern} for label, pattern in patterns.items()])
