"""The base class of `lac` and `entity_lists`, the components without a Thinc model. They process Docs in batches, and
are saved as a single file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from spacy.pipeline import Pipe
from spacy.tokens import Doc
from spacy.util import minibatch
from spacy.vocab import Vocab

from ..errors import wrap_load_errors
from ..files import write_bytes
from ..requirements import save_requirements


class BatchPipe(Pipe):
    """Base class of components that process Docs in batches.

    file (str): Name of the file when the component is saved.
    """

    file = ""

    def __init__(self, vocab: Vocab, name: str, scorer: Callable[..., Any] | None) -> None:
        self.vocab, self.name, self.scorer = vocab, name, scorer

    @abstractmethod
    def set_annotations(self, docs: Sequence[Doc]) -> None:
        """Write the annotation of a batch of Docs."""

    @abstractmethod
    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the data of the component as bytes."""

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Load the bytes that `to_bytes` returned."""

    def __call__(self, doc: Doc) -> Doc:
        self.set_annotations([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Process a stream of Docs in batches."""
        on_error = self.get_error_handler()
        for docs in minibatch(stream, size=batch_size):
            try:
                self.set_annotations(docs)
                yield from docs
            except Exception as error:
                on_error(self.name, self, docs, error)

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        """Load the bytes that `to_bytes` returned. Errors name the component."""
        with wrap_load_errors(self.name, "bytes"):
            self.load(data)
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the component to a file in a directory."""
        write_bytes(Path(path) / self.file, self.to_bytes())
        save_requirements(Path(path), [self])

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Load the component from a directory that `to_disk` wrote."""
        with wrap_load_errors(self.name, str(path)):
            self.load((Path(path) / self.file).read_bytes())
        return self
