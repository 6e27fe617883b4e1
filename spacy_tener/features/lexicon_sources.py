"""Registered functions that create lexicons from jieba's dictionary, word lists and pretrained vectors.

Each function returns a callback without arguments that loads the `Lexicon`. The callback is called when the pipeline is
initialized. `read_list` parses word lists, also for lists that users add to a trained pipeline.
"""

from __future__ import annotations

import os
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
# Matches a frequency, such as `125472s`, but not a tag that starts with a digit, such as `5G`.
_COUNT_NOT_TAG = re.compile(r"[0-9]{1,18}(?=s?$|[\W\d]*$)")
_JIEBA_TAG = re.compile("[a-z]{1,2}|nrt|nrfg|eng")
_JIEBA_LINE = re.compile(rf"([^\t]+) ([0-9]+) ({_JIEBA_TAG.pattern})")
_ENDING = ".txt"
# Maximum word length. Longer strings in dictionaries and vector files are phrases or segmentation errors.
_MAX_WORD_LENGTH = 10


class LexiconEntry(NamedTuple):
    """A line of a word list.

    word (str): The word.
    frequency (int | None): The word's frequency, or None if the line contains none.
    tag (str): The word's tag, or an empty string.
    line (int): The line number, starting with 1.
    """

    word: str
    frequency: int | None
    tag: str
    line: int


def read_list(
    path: Path, tag: str = "", *, has_tags: bool = False, allow_jieba_format: bool = False
) -> Iterator[LexiconEntry]:
    """Yield the entries of a word list, a text file with one word per line.

    A line is `word` or `word<TAB>frequency`.

    path (Path): The file, which can be compressed.
    tag (str): The tag for words whose line contains no tag.
    has_tags (bool): Whether the lines `word<TAB>tag` and `word<TAB>frequency<TAB>tag` are allowed.
    allow_jieba_format (bool): Whether jieba's format is allowed, `word frequency tag` with spaces. Ignored if `tag` is
        a tag that jieba does not use.
    """
    allow_jieba_format = allow_jieba_format and (not tag or _JIEBA_TAG.fullmatch(tag) is not None)
    for number, raw_line in read_lines(path):
        line = raw_line.strip()
        if not line:
            continue
        jieba = _JIEBA_LINE.fullmatch(line) if allow_jieba_format else None  # 'iphone 15 pro' does not match
        word, *rest = (field.strip() for field in (jieba.groups() if jieba else line.split("\t")))
        # Characters after the number are ignored, since THUOCL's lists contain frequencies such as `3?` and `125472s`.
        count = (_COUNT_NOT_TAG if has_tags and len(rest) == 1 else _COUNT).match(rest[0]) if rest else None
        rest = rest[1:] if count else rest
        tag_of_word = rest.pop(0) if rest and has_tags else ""
        if rest:
            forms = "`word`, `word<TAB>frequency`" + " or `word<TAB>tag`" * has_tags
            reason = f"expected {forms}, but got {line[:60]!r}"
            raise InputError(str(path), reason, "Repair or remove the line.", line=number)
        yield LexiconEntry(word, int(count[0]) if count else None, tag_of_word or tag, number)


def list_files(path: Path) -> list[Path]:
    """Return the path of a file, or the paths of all text files in a directory, sorted by name."""
    # Unlike `Path.is_dir`, this raises no error, for example for a path that is too long.
    if not os.path.isdir(path):
        return [path]
    files, _ = walk(path, lambda file: suffix_of(file) == _ENDING)
    if not files:
        raise InputError(
            str(path),
            f"the directory contains no {_ENDING} files (or .txt.gz, ...)",
            "Use the path of a word list, or of a directory with word lists.",
        )
    return files


def list_name(path: Path) -> str:
    """Return a file name without suffixes, for example `THUOCL_law` for `THUOCL_law.txt.xz`."""
    ending = suffix_of(path)
    return path.name.rpartition(ending)[0] if ending else path.name


def jieba_lexicon() -> LexiconSource:
    """Create a callback that loads the dictionary of jieba, a Chinese word segmenter (MIT license).

    Registered as `spacy_tener.JiebaLexicon.v1`. The lexicon contains 337,302 words with 2 to 10 characters. A word's
    tag is its part of speech, such as ns for places. The package jieba must be installed, but is not imported.

    RETURNS (Callable[[], Lexicon]): The callback.
    """
    return read_jieba


# The file never changes. Therefore, all pipelines in a process can share the lexicon.
@lru_cache(maxsize=1)
def read_jieba() -> Lexicon:
    """Load jieba's dictionary, with parts of speech as tags."""
    fix = f"Run `{install('jieba')}`, or set `lexicon` to spacy_tener.WordList.v1 with a file."
    folder = check_package("jieba", "Loading the lexicon requires", fix)
    entries = read_list(folder / "dict.txt", has_tags=True, allow_jieba_format=True)
    return _lexicon_of([entry for entry in entries if len(entry.word) <= _MAX_WORD_LENGTH])


def word_list(
    path: str | Path, tag: str | None = None, min_frequency: int = 0, max_length: int | None = None
) -> LexiconSource:
    """Create a callback that loads a lexicon from word lists, such as THUOCL.

    Registered as `spacy_tener.WordList.v1`. A word list contains `word` or `word<TAB>frequency` on each line.

    path (Union[str, Path]): A UTF-8 file, which can be compressed with gzip, bzip2 or xz. Or a directory, from which
        all files with the suffix `.txt`, `.txt.gz`, `.txt.bz2` or `.txt.xz` are loaded.
    tag (Optional[str]): The tag for all words, such as `place`. By default, the file name if `path` is a directory,
        otherwise no tag.
    min_frequency (int): Minimum word frequency. If it is above 0, each line must contain a frequency.
    max_length (Optional[int]): Maximum number of characters in a word. None for no limit.
    RETURNS (Callable[[], Lexicon]): The callback.
    """
    return partial(_read_word_list, Path(path), tag, min_frequency, max_length)


def _read_word_list(path: Path, tag: str | None, min_frequency: int, max_length: int | None) -> Lexicon:
    entries: list[LexiconEntry] = []
    for file in list_files(path):
        default = list_name(file) if file != path else ""
        for entry in read_list(file, default if tag is None else tag):
            if min_frequency > 0 and entry.frequency is None:
                reason = f"{entry.word[:60]!r} has no frequency, but min_frequency is {min_frequency}"
                fix = "Set min_frequency to 0, or give every word a frequency."
                raise InputError(str(file), reason, fix, line=entry.line)
            if (entry.frequency or 0) >= min_frequency and (max_length is None or len(entry.word) <= max_length):
                entries.append(entry)
    return _lexicon_of(entries)


def vectors_lexicon(path: str | Path) -> LexiconSource:
    """Create a callback that loads the vocabulary of pretrained vectors as a lexicon, so that every word has a vector.

    Registered as `spacy_tener.VectorsLexicon.v1`. Only strings with 2 to 10 characters are used.

    path (Union[str, Path]): A word2vec or GloVe text file, which can be compressed with gzip, bzip2 or xz. Or a
        directory written by `spacy init vectors`.
    RETURNS (Callable[[], Lexicon]): The callback.
    """
    return partial(_read_vectors_lexicon, path)


def _read_vectors_lexicon(path: str | Path) -> Lexicon:
    words: list[str] = []

    def note(word: str) -> bool:
        """Store a word. Return False, so that its vector is not parsed."""
        words.append(word)
        return False

    read_vectors(path, keep=note)
    return Lexicon(word for word in words if len(word) <= _MAX_WORD_LENGTH)


def joined_lexicon(*sources: LexiconSource) -> LexiconSource:
    """Create a callback that merges several lexicons. Each word keeps the tag from the first lexicon that contains it.

    Registered as `spacy_tener.JoinedLexicon.v1`.

    *sources (Callable[[], Lexicon]): Callbacks that load the lexicons.
    RETURNS (Callable[[], Lexicon]): The callback.
    """
    return partial(_join_lexicons, sources)


def _join_lexicons(sources: Iterable[LexiconSource]) -> Lexicon:
    lexicons = [source() for source in sources]
    words = chain.from_iterable(lexicon.words for lexicon in lexicons)
    return Lexicon(words, (lexicon.tag_names[tag] for lexicon in lexicons for tag in lexicon.tags.tolist()))


def _lexicon_of(entries: Sequence[LexiconEntry]) -> Lexicon:
    return Lexicon((entry.word for entry in entries), (entry.tag for entry in entries))
