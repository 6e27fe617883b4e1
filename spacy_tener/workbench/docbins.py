"""Docs in spaCy's binary format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from spacy.tokens import Doc, DocBin
from spacy.training import Corpus
from spacy.vocab import Vocab

from ..errors import InputError


def read_docs(path: Path, vocab: Vocab | None = None) -> Iterator[Doc]:
    """Read the Docs of a `.spacy` file."""
    try:
        docs = DocBin().from_disk(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except Exception as error:  # whatever zlib and msgpack make of a file of another kind
        raise InputError(str(path), "is not a .spacy file", "Make it with `spacy tener convert`.") from error
    yield from docs.get_docs(vocab or Vocab())


class NamingCorpus(Corpus):
    """spaCy's reader of corpora; its errors name the file that cannot be read."""

    def read_docbin(self, vocab: Vocab, locs: Iterable[str | Path]) -> Iterator[Doc]:
        docs = (doc for path in locs for doc in read_docs(Path(path), vocab) if len(doc))
        return islice(docs, self.limit if self.limit >= 1 else None)
