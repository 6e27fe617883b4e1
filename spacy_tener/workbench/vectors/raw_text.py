"""Raw text, a paragraph a line, from whatever holds it: text files, JSONL, `.spacy` files, directories, standard input.

Nothing is held but the paragraph at hand, except that a `.spacy` file is one piece and is read whole.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ...errors import InputError
from ...features.lexicon_sources import list_files, read_list
from ...inputs import STDIN, find_files, parse_json, read_lines, suffix_of
from ...pipeline.units import view_of
from ..docbins import read_docs

Reader = Callable[[Language], Iterator[Example]]

_TEXT, _JSONL, _SPACY = ".txt", ".jsonl", ".spacy"


def find_texts(inputs: Sequence[str | Path]) -> tuple[list[str], list[str]]:
    """Return the files to read, in order, and those of directories that hold no text as far as their names tell.

    A file that is named several times is read as often, and counts so much more. Directories give their `.txt`,
    `.jsonl` and `.spacy` files, packed ones too, wherever below them; hidden ones are neither read nor listed.
    """
    remedy = f"Name the files themselves, or let them end in {_TEXT}, {_JSONL} or {_SPACY}."
    files, left_out = find_files(inputs, lambda path: suffix_of(path) in (_TEXT, _JSONL, _SPACY), "text", remedy)
    return [file.address for file in files], left_out


def comes_once(source: str | Path) -> bool:
    """Tell whether a source can be read only once: standard input, or a pipe."""
    return str(source) == STDIN or (Path(source).exists() and not Path(source).is_file())


def read_texts(source: str | Path) -> Iterator[str]:
    """Yield the paragraphs of a file, or of standard input for `-`. Some may be empty or blank."""
    suffix = suffix_of(source)
    if suffix == _SPACY:
        for doc in read_docs(Path(source)):
            yield from doc.text.split("\n")
    elif suffix == _JSONL:
        yield from _json_texts(source)
    else:
        yield from (line for _, line in read_lines(source))


def read_all(sources: Sequence[str]) -> Generator[str]:
    """Yield the paragraphs of several files without blanks at their edges, but for those that are all blank."""
    return (text.strip() for source in sources for text in read_texts(source) if text.strip())


def make_docs(nlp: Language, texts: Iterable[str]) -> Iterator[Doc]:
    """Yield texts as the pipeline's tokenizer divides them, however long they are."""
    # Not by nlp.make_doc or nlp.pipe: they end at a text of more than nlp.max_length characters, a million, which is
    # there for components that hold all of a Doc at once. What reads raw text here reads it in windows or cuts it.
    return map(nlp.tokenizer, texts)


def read_words(path: str | Path) -> list[str]:
    """Return the distinct words of a list, or of all lists in a directory, as `spacy_tener.WordList.v1` reads them."""
    words = dict.fromkeys(entry.word for file in list_files(Path(path)) for entry in read_list(file, ""))
    if not words:
        raise InputError(str(path), "there is no word in it", "Give a list with a word on each line.")
    return list(words)


def is_corpus(path: str | Path) -> bool:
    """Tell whether a file holds texts that come in records, so that it is no list of words."""
    return suffix_of(path) in (_JSONL, _SPACY)


def _json_texts(source: str | Path) -> Iterator[str]:
    for number, line in read_lines(source):
        if line.strip():
            try:
                text = parse_json(line)["text"]
                text.encode("utf-8")  # which halves of surrogate pairs cannot be
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                reason, remedy = 'no record with a "text" of whole characters', 'Write {"text": "..."}.'
                raise InputError(str(source), reason, remedy, line=number) from error
            yield from text.split("\n")


def raw_text(
    path: str | Path | Sequence[str | Path] | None = None,
    min_length: int = 5,
    max_length: int = 200,
    shuffle: bool = True,
) -> Reader:
    """Read paragraphs of raw text, each a Doc without annotation, for `[pretraining]`.

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
        texts: Iterator[str] = read_all(sources)
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
