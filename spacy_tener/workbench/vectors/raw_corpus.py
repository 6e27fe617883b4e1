"""Raw text as `spacy pretrain` wants it: Docs of bounded length, from whatever holds the text."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ...errors import InputError
from ...pipeline.units import view_of
from .raw_text import find_texts, make_docs, read_all

Reader = Callable[[Language], Iterator[Example]]


def raw_text(
    path: str | Path | Sequence[str | Path] | None = None,
    min_length: int = 5,
    max_length: int = 200,
    shuffle: bool = True,
) -> Reader:
    """Paragraphs of raw text, each a Doc without annotation, for `[pretraining]`.

    Registered as `spacy_tener.RawText.v1`. Reads what `spacy tener vectors` reads.

    path (Optional[Union[str, Path, List[Union[str, Path]]]]): Files (text with a paragraph on each line, `.jsonl` with
        a "text", `.spacy`; plain, gz, bz2 or xz), or directories of them. A file that is named twice counts twice.
    min_length (int): Shorter Docs are left out.
    max_length (int): A longer paragraph is cut into Docs of so many tokens, so that a batch stays small. The last one
        may be shorter.
    shuffle (bool): Draw a new order on each pass. All text is held for it; otherwise a paragraph at a time.
    """
    if min_length < 0 or max_length < 1:
        raise ValueError(f"RawText needs min_length >= 0 and max_length >= 1, but got {min_length} and {max_length}.")

    def read(nlp: Language) -> Iterator[Example]:
        if not path:
            remedy = "Give `path` in its section of the config a file or a directory, as by --paths.raw_text."
            raise InputError("RawText", "no text is named", remedy)
        sources, _ = find_texts([path] if isinstance(path, (str, Path)) else path)
        texts = read_all(sources)
        if shuffle:
            held = list(texts)
            random.shuffle(held)
            texts = iter(held)
        given = False
        for paragraph in make_docs(nlp, texts):
            for doc in _cut(paragraph, max_length):
                if len(doc) >= min_length:
                    given = True
                    yield Example(doc, doc.copy())
        if not given:
            remedy = f"Give texts of at least min_length = {min_length} tokens."
            raise InputError(", ".join(sources), "there is no text", remedy)

    return read


def _cut(doc: Doc, length: int) -> Iterator[Doc]:
    view = view_of(doc, "tokens")
    return (view.piece(start, min(start + length, len(doc))) for start in range(0, len(doc), length))
