"""Sources of lexicons: jieba's dictionary, lists of words, strings of vectors.

A model reads its source once, when it is initialized.
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
_COUNT_NOT_TAG = re.compile(r"[0-9]{1,18}(?=s?$|[\W\d]*$)")
"""A frequency where there may be a tag instead, such as `5G`."""
_JIEBA_TAG = re.compile("[a-z]{1,2}|nrt|nrfg|eng")
_JIEBA_LINE = re.compile(rf"([^\t]+) ([0-9]+) ({_JIEBA_TAG.pattern})")
_ENDING = ".txt"
_MAX_WORD_LENGTH = 10
"""Longer strings of a dictionary or of vectors are no words."""


class LexiconEntry(NamedTuple):
    """A line of a list of words.

    frequency (int | None): None where the list has none for the word.
    line (int): Its number, from 1.
    """

    word: str
    frequency: int | None
    tag: str
    line: int


def read_list(
    path: Path, tag: str = "", *, has_tags: bool = False, allow_jieba_format: bool = False
) -> Iterator[LexiconEntry]:
    """Read `word`, or `word<TAB>frequency`, on each line.

    tag (str): Tag of words whose line has none.
    has_tags (bool): Whether lines may have a tag: `word<TAB>tag` or `word<TAB>frequency<TAB>tag`.
    allow_jieba_format (bool): Whether lines may have jieba's form, `word frequency tag` with one of its tags. Beside a `tag`
        that is not jieba's, such a line is a word.
    """
    allow_jieba_format = allow_jieba_format and (not tag or _JIEBA_TAG.fullmatch(tag) is not None)
    for number, raw_line in read_lines(path):
        line = raw_line.strip()
        if not line:
            continue
        jieba = _JIEBA_LINE.fullmatch(line) if allow_jieba_format else None  # 'iphone 15 pro' is a word
        word, *rest = (field.strip() for field in (jieba.groups() if jieba else line.split("\t")))
        # Anything after the number is ignored: THUOCL's lists have `3?` and `125472s`.
        count = (_COUNT_NOT_TAG if has_tags and len(rest) == 1 else _COUNT).match(rest[0]) if rest else None
        rest = rest[1:] if count else rest
        tag_of_word = rest.pop(0) if rest and has_tags else ""
        if rest:
            forms = "`word`, `word<TAB>frequency`" + " or `word<TAB>tag`" * has_tags
            reason = f"expected {forms}, but got {line[:60]!r}"
            raise InputError(str(path), reason, "Repair or remove the line.", line=number)
        yield LexiconEntry(word, int(count[0]) if count else None, tag_of_word or tag, number)


def list_files(path: Path) -> list[Path]:
    """Return the files of a word list: the file itself, or those below a directory, sorted by name."""
    if not path.is_dir():
        return [path]
    files, _ = walk(path, lambda file: suffix_of(file) == _ENDING)
    if not files:
        raise InputError(str(path), f"no file in it ends in {_ENDING} (or .txt.gz, ...)", "Name a list of words.")
    return files


def list_name(path: Path) -> str:
    """Return the file's name without its endings: `THUOCL_law.txt.xz` is `THUOCL_law`."""
    ending = suffix_of(path)
    return path.name.rpartition(ending)[0] if ending else path.name


def jieba_lexicon() -> LexiconSource:
    """Read the dictionary of the Chinese word segmenter jieba (MIT): 337,302 words of 2 to 10 characters.

    Registered as `spacy_tener.JiebaLexicon.v1`. Only its file is read, the package is not imported. It is in the extra
    `zh`. A word's part of speech (ns: a place, nr: a person, nt: an organization, ...) is its tag.
    """
    return read_jieba


# Pipelines of one process share it: a lexicon never changes, and the file belongs to the package.
@lru_cache(maxsize=1)
def read_jieba() -> Lexicon:
    """Read jieba's dictionary."""
    remedy = f"{install('jieba')}, or set `lexicon` to spacy_tener.WordList.v1 and a file."
    folder = check_package("jieba", "The lexicon is read from", remedy)
    entries = read_list(folder / "dict.txt", has_tags=True, allow_jieba_format=True)
    return _lexicon_of([entry for entry in entries if len(entry.word) <= _MAX_WORD_LENGTH])


def word_list(
    path: str | Path, tag: str | None = None, min_frequency: int = 0, max_length: int | None = None
) -> LexiconSource:
    """Read a list with a word, or `word<TAB>frequency`, on each line, as those of THUOCL.

    Registered as `spacy_tener.WordList.v1`.

    path (Union[str, Path]): A file in UTF-8, plain, gzip, bzip2 or xz, or a directory: then every `.txt`, `.txt.gz`,
        `.txt.bz2` and `.txt.xz` in it, in the order of their names.
    tag (Optional[str]): What the words are, as `place`. None: for a directory the name of each file, for a file no tag.
    min_frequency (int): Words with a smaller frequency are left out. Above 0 every line must have a frequency.
    max_length (Optional[int]): Longer words are left out.
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
    """Take the strings of 2 to 10 characters of pretrained vectors: then every word has one. Their values are not read.

    Registered as `spacy_tener.VectorsLexicon.v1`.

    path (Union[str, Path]): A word2vec or GloVe text file (plain, gzip, bzip2 or xz), or whatever else the embedders
        take as vectors and has strings.
    """
    return partial(_read_vectors_lexicon, path)


def _read_vectors_lexicon(path: str | Path) -> Lexicon:
    words: list[str] = []

    def note(word: str) -> bool:
        """Note a word, and keep no row, so that none is converted to numbers."""
        words.append(word)
        return False

    read_vectors(path, keep=note)
    return Lexicon(word for word in words if len(word) <= _MAX_WORD_LENGTH)


def joined_lexicon(*sources: LexiconSource) -> LexiconSource:
    """Join the words of several sources. A word that several have keeps the tag of the first.

    Registered as `spacy_tener.JoinedLexicon.v1`.

    *sources (Callable[[], Lexicon]): The sources in their order.
    """
    return partial(_join_lexicons, sources)


def _join_lexicons(sources: Iterable[LexiconSource]) -> Lexicon:
    lexicons = [source() for source in sources]
    words = chain.from_iterable(lexicon.words for lexicon in lexicons)
    return Lexicon(words, (lexicon.tag_names[tag] for lexicon in lexicons for tag in lexicon.tags.tolist()))


def _lexicon_of(entries: Sequence[LexiconEntry]) -> Lexicon:
    return Lexicon((entry.word for entry in entries), (entry.tag for entry in entries))
