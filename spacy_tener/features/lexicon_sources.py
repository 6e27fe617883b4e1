"""Registered functions that create lexicons: jieba's dictionary, files with word lists, and the strings of vectors.

Each function returns a source, a function without arguments that returns the `Lexicon`. `initialize` calls the source
once. `read_list` parses the files, and is also used for the lists that users add to a trained pipeline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError, check_package, install
from ..inputs import read_lines, suffix_of, walk
from .lexicon import Lexicon
from .pretrained_vectors import read_vectors

LexiconSource = Callable[[], Lexicon]

_COUNT = re.compile(r"[0-9]{1,18}")
# A frequency in a column that can contain a tag instead. `5G` is a tag, `125472s` a frequency.
_COUNT_NOT_TAG = re.compile(r"[0-9]{1,18}(?=s?$|[\W\d]*$)")
_JIEBA_TAG = re.compile("[a-z]{1,2}|nrt|nrfg|eng")
_JIEBA_LINE = re.compile(rf"([^\t]+) ([0-9]+) ({_JIEBA_TAG.pattern})")
_ENDING = ".txt"
# Longer entries in a dictionary or in a vectors file are phrases or errors of segmentation.
_MAX_WORD_LENGTH = 10


class LexiconEntry(NamedTuple):
    """A line of a word list.

    word (str): The word.
    frequency (int | None): The frequency of the word, or None if the line contains no frequency.
    tag (str): The tag of the word, or the empty string.
    line (int): The line number, counted from 1.
    """

    word: str
    frequency: int | None
    tag: str
    line: int


def read_list(
    path: Path, tag: str = "", *, has_tags: bool = False, allow_jieba_format: bool = False
) -> Iterator[LexiconEntry]:
    """Yield the entries of a word list, a text file with `word` or `word<TAB>frequency` on each line.

    path (Path): The file, which can be compressed.
    tag (str): The tag of words whose line contains no tag.
    has_tags (bool): Whether lines can contain a tag: `word<TAB>tag` or `word<TAB>frequency<TAB>tag`.
    allow_jieba_format (bool): Whether lines may have jieba's form, `word frequency tag` with one of its tags. If
        `tag` is not one of jieba's tags, such a line is a word.
    """
    allow_jieba_format = allow_jieba_format and (not tag or _JIEBA_TAG.fullmatch(tag) is not None)
    for number, raw_line in read_lines(path):
        line = raw_line.strip()
        if not line:
            continue
        jieba = _JIEBA_LINE.fullmatch(line) if allow_jieba_format else None  # 'iphone 15 pro' is a word
        word, *rest = (field.strip() for field in (jieba.groups() if jieba else line.split("\t")))
        # Text after the number is ignored, since THUOCL's lists contain frequencies such as `3?` and `125472s`.
        count = (_COUNT_NOT_TAG if has_tags and len(rest) == 1 else _COUNT).match(rest[0]) if rest else None
        rest = rest[1:] if count else rest
        tag_of_word = rest.pop(0) if rest and has_tags else ""
        if rest:
            forms = "`word`, `word<TAB>frequency`" + " or `word<TAB>tag`" * has_tags
            reason = f"expected {forms}, but got {line[:60]!r}"
            raise InputError(str(path), reason, "Repair or remove the line.", line=number)
        yield LexiconEntry(word, int(count[0]) if count else None, tag_of_word or tag, number)


def list_files(path: Path) -> list[Path]:
    """Return the file, or all text files below a directory, sorted by name."""
    if not path.is_dir():
        return [path]
    files, _ = walk(path, lambda file: suffix_of(file) == _ENDING)
    if not files:
        raise InputError(str(path), f"no file in it ends in {_ENDING} (or .txt.gz, ...)", "Name a list of words.")
    return files


def list_name(path: Path) -> str:
    """Return the name of a file without its suffixes: `THUOCL_law` for `THUOCL_law.txt.xz`."""
    ending = suffix_of(path)
    return path.name.rpartition(ending)[0] if ending else path.name


def jieba_lexicon() -> LexiconSource:
    """Create a source that loads the dictionary of the Chinese word segmenter jieba (MIT): 337,302 words.

    Registered as `spacy_tener.JiebaLexicon.v1`. The words have 2 to 10 characters. The tag of a word is its part of
    speech, such as ns for places, nr for persons and nt for organizations. The package jieba is in the extra `zh`. Its
    dictionary file is loaded, but the package is not imported.

    RETURNS (Callable[[], Lexicon]): The source, which `initialize` calls.
    """
    return read_jieba


# Lexicons are immutable and the file is part of an installed package, so that all pipelines of a process can share one.
@lru_cache(maxsize=1)
def read_jieba() -> Lexicon:
    """Return the lexicon with the words and parts of speech in jieba's dictionary."""
    remedy = f"{install('jieba')}, or set `lexicon` to spacy_tener.WordList.v1 and a file."
    folder = check_package("jieba", "The lexicon is read from", remedy)
    entries = read_list(folder / "dict.txt", has_tags=True, allow_jieba_format=True)
    return _lexicon_of([entry for entry in entries if len(entry.word) <= _MAX_WORD_LENGTH])


def word_list(
    path: str | Path, tag: str | None = None, min_frequency: int = 0, max_length: int | None = None
) -> LexiconSource:
    """Create a source that loads word lists with `word` or `word<TAB>frequency` on each line, such as THUOCL's lists.

    Registered as `spacy_tener.WordList.v1`.

    path (Union[str, Path]): A file in UTF-8, plain or compressed with gzip, bzip2 or xz; or a directory, of which all
        `.txt`, `.txt.gz`, `.txt.bz2` and `.txt.xz` files are loaded in the order of their names.
    tag (Optional[str]): The tag of all words, such as `place`. None for no tag, or for the name of each file if `path`
        is a directory.
    min_frequency (int): Minimum frequency of the words. If it is above 0, all lines must contain a frequency.
    max_length (Optional[int]): Maximum number of characters of the words. None for no limit.
    RETURNS (Callable[[], Lexicon]): The source, which `initialize` calls.
    """
    return partial(_read_word_list, Path(path), tag, min_frequency, max_length)


def _read_word_list(path: Path, tag: str | None, min_frequency: int, max_length: int | None) -> Lexicon:
    entries: list[LexiconEntry] = []
    for file in list_files(path):
        default = list_name(file) if path.is_dir() else ""
        for entry in read_list(file, default if tag is None else tag):
            if min_frequency > 0 and entry.frequency is None:
                reason = f"{entry.word[:60]!r} has no frequency, but min_frequency is {min_frequency}"
                remedy = "Set min_frequency to 0, or give every word a frequency."
                raise InputError(str(file), reason, remedy, line=entry.line)
            if (entry.frequency or 0) >= min_frequency and (max_length is None or len(entry.word) <= max_length):
                entries.append(entry)
    return _lexicon_of(entries)


def vectors_lexicon(path: str | Path) -> LexiconSource:
    """Create a source that uses the strings of pretrained vectors as words, so that all words have a pretrained vector.

    Registered as `spacy_tener.VectorsLexicon.v1`. Strings with 2 to 10 characters are used. The values of the vectors
    are not parsed.

    path (Union[str, Path]): A word2vec or GloVe text file (plain, gzip, bzip2 or xz), or a directory written by
        `spacy init vectors`.
    RETURNS (Callable[[], Lexicon]): The source, which `initialize` calls.
    """
    return partial(_read_vectors_lexicon, path)


def _read_vectors_lexicon(path: str | Path) -> Lexicon:
    words: list[str] = []

    def note(word: str) -> bool:
        """Store a word, and return False so that its vector is not parsed."""
        words.append(word)
        return False

    read_vectors(path, keep=note)
    return Lexicon(word for word in words if len(word) <= _MAX_WORD_LENGTH)


def joined_lexicon(*sources: LexiconSource) -> LexiconSource:
    """Create a source that combines the words of several sources. A word in several sources gets the tag of the first.

    Registered as `spacy_tener.JoinedLexicon.v1`.

    *sources (Callable[[], Lexicon]): The sources in their order.
    RETURNS (Callable[[], Lexicon]): The combined source, which `initialize` calls.
    """
    return partial(_join_lexicons, sources)


def _join_lexicons(sources: Iterable[LexiconSource]) -> Lexicon:
    lexicons = [source() for source in sources]
    words = chain.from_iterable(lexicon.words for lexicon in lexicons)
    return Lexicon(words, (lexicon.tag_names[tag] for lexicon in lexicons for tag in lexicon.tags.tolist()))


def _lexicon_of(entries: Sequence[LexiconEntry]) -> Lexicon:
    return Lexicon((entry.word for entry in entries), (entry.tag for entry in entries))
