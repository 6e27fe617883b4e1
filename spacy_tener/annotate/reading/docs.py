"""Records from `.spacy` files: the texts of their Docs, and what `user_data` holds beside them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO

from spacy.tokens import DocBin
from spacy.vocab import Vocab

from .lines import Record


def read_spacy(file: IO[bytes], text: str) -> Iterator[Record]:
    """Each Doc's text, and the columns in its `user_data`. A file is one piece, and is read whole."""
    for doc in DocBin().from_bytes(file.read()).get_docs(Vocab()):
        columns = {name: value for name, value in doc.user_data.items() if isinstance(name, str)}
        yield {text: doc.text, **columns}, len(doc.text)
