"""Raw text as a corpus, for `spacy pretrain` and for a teacher: paragraphs without annotation."""

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
    """Yield the lines of the texts of files, stripped of white space, without blank ones."""
    lines = (line.strip() for record in stream_records(addresses) for line in record[TEXT_COLUMN].split("\n"))
    return (line for line in lines if line)


@registry.readers("spacy_tener.RawText.v1")  # type: ignore[untyped-decorator]
def raw_text(
    path: str | Path | Sequence[str | Path] | None = None,
    min_length: int = 5,
    max_length: int = 200,
    shuffle: bool = True,
) -> Reader:
    """Read paragraphs of raw text, each a Doc without annotation, for `[pretraining]`.

    Registered as `spacy_tener.RawText.v1` where this file is imported, as by `--code research/raw_corpus.py`.

    path (Optional[Union[str, Path, List[Union[str, Path]]]]): Files (text with a paragraph on each line, `.jsonl` with
        a "text", `.spacy`; plain, gz, bz2 or xz), or directories of them. A file that is named twice counts twice.
    min_length (int): Shorter Docs are left out.
    max_length (int): A longer paragraph is cut into Docs of this number of tokens, the last one shorter, so that
        batches stay small.
    shuffle (bool): Shuffle on each pass, with all text in memory. Otherwise text is streamed.
    """
    if min_length < 0 or max_length < 1:
        raise ValueError(f"RawText needs min_length >= 0 and max_length >= 1, but got {min_length} and {max_length}.")

    def read(nlp: Language) -> Iterator[Example]:
        if not path:
            remedy = "Set `path` in its section of the config to a file or a directory, as by --paths.raw_text."
            raise InputError("RawText", "no text is named", remedy)
        sources, _ = find_texts([path] if isinstance(path, (str, Path)) else path)
        texts = read_paragraphs(sources)
        if shuffle:
            held = list(texts)
            random.shuffle(held)
            texts = iter(held)
        is_found = False
        # nlp.make_doc refuses texts over nlp.max_length for the sake of components that process a whole Doc at once.
        for paragraph in map(nlp.tokenizer, texts):
            for doc in _cut(paragraph, max_length):
                if len(doc) >= min_length:
                    is_found = True
                    yield Example(doc, doc.copy())
        if not is_found:
            remedy = f"Give texts of at least min_length = {min_length} tokens."
            raise InputError(", ".join(sources), "there is no text", remedy)

    return read


def _cut(doc: Doc, length: int) -> Iterator[Doc]:
    view = view_of(doc, "tokens")
    return (view.slice_doc(start, min(start + length, len(doc))) for start in range(0, len(doc), length))
