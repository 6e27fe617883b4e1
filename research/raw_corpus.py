"""A corpus reader for raw texts, for `spacy pretrain` and for distillation: paragraphs without annotation."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import registry

from spacy_tener.annotate.answers import TEXT_COLUMN
from spacy_tener.annotate.records import find_texts, stream_records
from spacy_tener.errors import InputError
from spacy_tener.pipeline.units import view_of

Reader = Callable[[Language], Iterator[Example]]


def read_paragraphs(addresses: Sequence[str]) -> Iterator[str]:
    """Yield the paragraphs (lines) of text files, without surrounding white space. Blank lines are skipped."""
    lines = (line.strip() for record in stream_records(addresses) for line in record[TEXT_COLUMN].split("\n"))
    return (line for line in lines if line)


@registry.readers("spacy_tener.RawText.v1")  # type: ignore[untyped-decorator]
def raw_text(
    path: str | Path | Sequence[str | Path] | None = None,
    min_length: int = 5,
    max_length: int = 200,
    shuffle: bool = True,
) -> Reader:
    """Create a reader that yields paragraphs of raw text as unannotated Docs, for `[pretraining]`.

    Registered as `spacy_tener.RawText.v1` when this file is imported, for example with `--code research/raw_corpus.py`.

    path (Optional[Union[str, Path, List[Union[str, Path]]]]): Files or directories. Supported formats are text with one
        paragraph per line, `.jsonl` with a "text", and `.spacy`, each also compressed with gzip, bzip2 or xz. A file
        that is listed twice is used twice.
    min_length (int): Minimum number of tokens. Shorter Docs are skipped.
    max_length (int): Maximum number of tokens. Longer paragraphs are split into Docs of this length, so that batches
        stay small.
    shuffle (bool): Shuffle the paragraphs in each epoch, which loads all texts into memory. Otherwise, texts are
        streamed.
    RETURNS (Reader): Function that takes the pipeline and yields Examples.
    """
    if min_length < 0 or max_length < 1:
        raise ValueError(f"RawText needs min_length >= 0 and max_length >= 1, but got {min_length} and {max_length}.")

    def read(nlp: Language) -> Iterator[Example]:
        if not path:
            fix = "Set `path` in its section of the config to a file or a directory, as by --paths.raw_text."
            raise InputError("RawText", "no text is named", fix)
        sources, _ = find_texts([path] if isinstance(path, (str, Path)) else path)
        texts = read_paragraphs(sources)
        if shuffle:
            held = list(texts)
            random.shuffle(held)
            texts = iter(held)
        is_found = False
        # Call the tokenizer directly: nlp.make_doc raises an error for texts longer than nlp.max_length.
        for paragraph in map(nlp.tokenizer, texts):
            for doc in _cut(paragraph, max_length):
                if len(doc) >= min_length:
                    is_found = True
                    yield Example(doc, doc.copy())
        if not is_found:
            fix = f"Give texts of at least min_length = {min_length} tokens."
            raise InputError(", ".join(sources), "there is no text", fix)

    return read


def _cut(doc: Doc, length: int) -> Iterator[Doc]:
    view = view_of(doc, "tokens")
    return (view.slice_doc(start, min(start + length, len(doc))) for start in range(0, len(doc), length))
