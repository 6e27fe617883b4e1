"""Annotated records as the bytes of a file: Parquet, JSONL or `.spacy`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.util import filter_spans

from ...errors import RemedyError
from ..settings import Settings
from .json_values import as_json, encodable

PARQUET, JSONL, SPACY = "parquet", "jsonl", "spacy"
OUTPUTS = (PARQUET, JSONL, SPACY)


def check_pyarrow() -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as error:
        raise RemedyError("Parquet needs pyarrow", "pip install 'spacy_tener[annotate]', or write jsonl") from error


def jsonl_bytes(rows: Sequence[dict[str, Any]]) -> bytes:
    return "".join(f"{as_json(row)}\n" for row in rows).encode()


def spacy_bytes(rows: Sequence[dict[str, Any]], nlp: Language, settings: Settings) -> bytes:
    """Docs with their entities, on whole tokens. All columns but the text are in `user_data`."""
    return DocBin(docs=[_doc(row, nlp, settings) for row in rows], store_user_data=True).to_bytes()


def _doc(row: dict[str, Any], nlp: Language, settings: Settings) -> Doc:
    readable = row[settings.error] is None
    doc = nlp.make_doc(row[settings.text]) if readable else Doc(nlp.vocab)
    places = [(each["start"], each["end"], each["label"]) for each in row[settings.entities]]
    spans = [doc.char_span(start, end, label=label, alignment_mode="expand") for start, end, label in places]
    doc.set_ents(filter_spans([span for span in spans if span is not None]))
    kept = {name: value for name, value in row.items() if not readable or name != settings.text}
    doc.user_data.update(encodable(kept))
    return doc
