"""Where the words of a lexicon are read from. A model reads its source once, when it is initialized."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path

from spacy.strings import StringStore

from ..vectors.vectors import read_vectors
from .files import Entry, list_files, list_name, read_dictionary, read_list
from .lexicon import Lexicon

LexiconSource = Callable[[], Lexicon]


def jieba_lexicon(min_frequency: int = 0, max_length: int = 10, tags: bool = True) -> LexiconSource:
    """The dictionary of the Chinese word segmenter jieba (MIT): 337,302 words of 2 to 10 characters.

    Registered as `spacy_tener.JiebaLexicon.v1`. Only its file is read, the package is not imported. It is in the extra
    `zh`.

    min_frequency (int): Words that jieba counted less often are left out.
    max_length (int): Longer words are left out.
    tags (bool): Whether a word's part of speech (ns: a place, nr: a person, nt: an organization, ...) becomes its tag.
    """
    _check(max_length)
    return partial(read_jieba, min_frequency, max_length, tags)


# Pipelines of one process share the last one read: a lexicon never changes, and the file belongs to the package.
@lru_cache(maxsize=1)
def read_jieba(min_frequency: int, max_length: int, tags: bool) -> Lexicon:
    spec = find_spec("jieba")
    if spec is None or spec.origin is None:
        raise ImportError(
            "The lexicon is read from the package jieba, which is not installed. Install it with "
            "`pip install 'spacy_tener[zh]'`, or set `lexicon` to spacy_tener.WordList.v1 and a file."
        )
    entries = read_dictionary(Path(spec.origin).parent / "dict.txt")
    return _select((entry if tags else entry._replace(tag="") for entry in entries), min_frequency, max_length)


def word_list(
    path: str | Path, tag: str | None = None, min_frequency: int = 0, max_length: int | None = None
) -> LexiconSource:
    """A list with a word, or `word<TAB>frequency`, on each line, as those of THUOCL.

    Registered as `spacy_tener.WordList.v1`.

    path (Union[str, Path]): A file in UTF-8, plain, gzip, bzip2 or xz, or a directory: then every `.txt`, `.txt.gz`,
        `.txt.bz2` and `.txt.xz` in it, in the order of their names.
    tag (Optional[str]): What the words are, as `place`. None: for a directory the name of each file, for a file no tag.
    min_frequency (int): Words with a smaller frequency are left out. Above 0 every line must have a frequency.
    max_length (Optional[int]): Longer words are left out.
    """
    _check(max_length)
    return partial(read_word_list, Path(path), tag, min_frequency, max_length)


def read_word_list(path: Path, tag: str | None, min_frequency: int, max_length: int | None) -> Lexicon:
    default = list_name if path.is_dir() else lambda file: ""
    lists = (read_list(file, default(file) if tag is None else tag) for file in list_files(path))
    entries = list(chain.from_iterable(lists))
    uncounted = next((entry.word for entry in entries if entry.frequency is None), None)
    if min_frequency > 0 and uncounted is not None:
        raise ValueError(f"{path}: {uncounted!r} has no frequency, so min_frequency must be 0. Set it so.")
    return _select(entries, min_frequency, max_length)


def vectors_lexicon(path: str | Path, max_length: int | None = 10) -> LexiconSource:
    """The strings of pretrained vectors: then every word has one. Their values are not read.

    Registered as `spacy_tener.VectorsLexicon.v1`.

    path (Union[str, Path]): A word2vec or GloVe text file (plain, gzip, bzip2 or xz), or whatever else the embedders
        take as vectors and has strings.
    max_length (Optional[int]): Longer strings are left out.
    """
    _check(max_length)
    return partial(read_vectors_lexicon, path, max_length)


def read_vectors_lexicon(path: str | Path, max_length: int | None) -> Lexicon:
    words: list[str] = []

    def note(word: str) -> bool:
        # A row that is not kept is not converted to numbers.
        words.append(word)
        return False

    read_vectors(path, keep=note)
    return _filter_lengths(words, max_length)


def vocab_lexicon(path: str | Path, max_length: int | None = 10) -> LexiconSource:
    """The strings of a spaCy vocab, which are the words that its pipeline has seen, but also labels and word shapes.

    Registered as `spacy_tener.VocabLexicon.v1`.

    path (Union[str, Path]): The directory of a pipeline, or of its vocab.
    max_length (Optional[int]): Longer strings are left out.
    """
    _check(max_length)
    return partial(read_vocab_lexicon, Path(path), max_length)


def read_vocab_lexicon(path: Path, max_length: int | None) -> Lexicon:
    files = [file for file in (path / "vocab" / "strings.json", path / "strings.json") if file.exists()]
    if not files:
        raise FileNotFoundError(f"There is no spaCy vocab at {path}. Give the directory of a pipeline or of its vocab.")
    return _filter_lengths(sorted(StringStore().from_disk(files[0])), max_length)


def joined_lexicon(*sources: LexiconSource) -> LexiconSource:
    """The words of several sources. A word that several have keeps the tag of the first.

    Registered as `spacy_tener.JoinedLexicon.v1`.

    *sources (Callable[[], Lexicon]): The sources in their order.
    """
    return partial(join_lexicons, *sources)


def join_lexicons(*sources: LexiconSource) -> Lexicon:
    lexicons = [source() for source in sources]
    words = chain.from_iterable(lexicon.words for lexicon in lexicons)
    return Lexicon(words, (lexicon.tag_names[tag] for lexicon in lexicons for tag in lexicon.tags.tolist()))


def _check(max_length: int | None) -> None:
    if max_length is not None and max_length < 2:
        raise ValueError(f"max_length is {max_length}, but the words of a lexicon have 2 characters or more.")


def _select(entries: Iterable[Entry], min_frequency: int, max_length: int | None) -> Lexicon:
    chosen = [
        entry
        for entry in entries
        if (entry.frequency is None or entry.frequency >= min_frequency)
        and (max_length is None or len(entry.word) <= max_length)
    ]
    return Lexicon((entry.word for entry in chosen), (entry.tag for entry in chosen))


def _filter_lengths(words: Iterable[str], max_length: int | None) -> Lexicon:
    return Lexicon(word for word in words if max_length is None or len(word) <= max_length)
