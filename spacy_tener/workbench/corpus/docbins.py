"""Docs in spaCy's binary format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from spacy.tokens import Doc, DocBin
from spacy.training import Corpus
from spacy.vocab import Vocab

from ...errors import InputError


def read_docs(path: Path, vocab: Vocab | None = None) -> Iterator[Doc]:
    """Read the Docs of a `.spacy` file."""
    yield from open_docbin(path).get_docs(Vocab() if vocab is None else vocab)


def open_docbin(path: Path) -> DocBin:
    """Read a `.spacy` file. Errors name it."""
    try:
        return DocBin().from_disk(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except Exception as error:  # zlib and msgpack raise many kinds for a file of another format
        raise InputError(str(path), "is not a .spacy file", "Make it with `spacy tener convert`.") from error


def repacked(like: DocBin, docs: Iterable[Doc]) -> bytes:
    """Return Docs as the content of a `.spacy` file, with the attributes and user data that `like` stores."""
    docbin = DocBin(store_user_data=any(data is not None for data in like.user_data))
    docbin.attrs = like.attrs
    for doc in docs:
        docbin.add(doc)
    return docbin.to_bytes()


class NamingCorpus(Corpus):
    """spaCy's Corpus, with errors that name the file."""

    def read_docbin(self, vocab: Vocab, locs: Iterable[str | Path]) -> Iterator[Doc]:
        docs = (doc for path in locs for doc in read_docs(Path(path), vocab) if len(doc))
        return islice(docs, self.limit if self.limit >= 1 else None)
