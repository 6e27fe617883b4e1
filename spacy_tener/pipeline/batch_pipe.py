"""`BatchPipe`, the base class for the components `lac` and `entity_lists`, which have no Thinc model."""

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
    """Base class for components that process Docs in batches and are saved as a single file.

    file (str): The file's name.
    """

    file = ""

    def __init__(self, vocab: Vocab, name: str, scorer: Callable[..., Any] | None) -> None:
        self.vocab, self.name, self.scorer = vocab, name, scorer

    @abstractmethod
    def set_annotations(self, docs: Sequence[Doc]) -> None:
        """Set the component's annotations on a batch of Docs."""

    @abstractmethod
    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Serialize the component's data."""

    @abstractmethod
    def load(self, data: bytes) -> None:
        """Load data that `to_bytes` serialized."""

    def __call__(self, doc: Doc) -> Doc:
        self.set_annotations([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Process a stream of Docs in batches."""
        for docs in minibatch(stream, size=batch_size):
            try:
                self.set_annotations(docs)
            except Exception:
                yield from self._pipe_one_by_one(docs)
            else:
                yield from docs

    def _pipe_one_by_one(self, docs: Iterable[Doc]) -> Iterator[Doc]:
        """Process the Docs of a batch that failed. Only the Docs that cause an error are passed to the error
        handler."""
        on_error = self.get_error_handler()
        for doc in docs:
            try:
                self.set_annotations([doc])
            except Exception as error:
                on_error(self.name, self, [doc], error)
            else:
                yield doc

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> Self:
        """Load data that `to_bytes` serialized. Error messages contain the component's name."""
        with wrap_load_errors(self.name, "bytes"):
            self.load(data)
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Save the component's data as a file in a directory."""
        write_bytes(Path(path) / self.file, self.to_bytes())
        save_requirements(Path(path), [self])

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Self:
        """Load the component from a directory that `to_disk` created."""
        with wrap_load_errors(self.name, str(path)):
            self.load((Path(path) / self.file).read_bytes())
        return self
