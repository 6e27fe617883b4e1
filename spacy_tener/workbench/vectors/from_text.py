"""Vectors from raw text, in files that the embedders read: `chars.vec`, `bigrams.vec` and `words.vec`."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ...errors import InputError, RemedyError
from ...files import check_folder, staged, write_text
from ...manifest import installed_versions
from .raw_text import is_corpus, read_texts, read_words
from .strings import BIGRAMS, CHARS, KINDS, WORDS, LexiconSplitter, TextSettings, TextSplitter
from .word_vectors import StringFile, TrainingSettings, train_vectors, word2vec, write_vectors

MIN_COUNTS = {CHARS: 1, BIGRAMS: 2, WORDS: 2}
"""How often a string must occur to get a vector, by default."""
SUMMARY, UNCOVERED = "vectors.json", "words.uncovered"
JIEBA = "jieba's dictionary"


@dataclass
class KindReport:
    """The vectors of one kind of strings.

    file: its name. strings: with a vector; distinct: before `min_count`; tokens: their occurrences in the text.
    """

    kind: str
    file: str
    strings: int
    distinct: int
    tokens: int
    seconds: float


@dataclass(frozen=True)
class Coverage:
    """The strings of one kind in one source that have a vector.

    missing: those without one, the most frequent first.
    occurrences, occurrences_covered: of all strings in a text, and of those with a vector; None for a list of words.
    """

    source: str
    kind: str
    strings: int
    covered: int
    missing: tuple[str, ...] = field(repr=False)
    occurrences: int | None = None
    occurrences_covered: int | None = None


@dataclass
class VectorsReport:
    """The vectors made of a text, and what they cover. seconds: for reading the text, splitting it and counting."""

    kinds: list[KindReport] = field(default_factory=list)
    coverage: list[Coverage] = field(default_factory=list)
    characters: int = 0
    seconds: float = 0.0


def make_vectors(
    sources: Sequence[str],
    output: str | Path,
    training: Mapping[str, TrainingSettings],
    *,
    reading: TextSettings | None = None,
    cover: Sequence[str | Path] = (),
    progress: bool = False,
    note: Callable[[KindReport], object] = lambda report: None,
) -> VectorsReport:
    """Train vectors for the strings of some texts, and write them below `output`.

    The text is read once, and is on disk beside the output as long as this takes, split into strings. Files appear when
    everything is done, each at once: a run that fails leaves what was there.

    sources: Files, and `-` for standard input. See `find_texts`.
    training: How to train each kind of `KINDS` that is wanted.
    cover: Lists of words, directories of them, `.spacy` and `.jsonl` files whose coverage is to be reported too.
    note: Called with each kind's report as soon as it is known.
    """
    output, reading = Path(output), reading or TextSettings()
    _check(output, training, cover)
    lexicons = {name: read_words(name) for name in reading.lexicon}
    lists = {str(path): read_words(path) for path in cover if not is_corpus(path)}
    split = TextSplitter(training, reading, (word for lexicon in lexicons.values() for word in lexicon))
    report = VectorsReport()
    with staged(output) as work:
        vectors = {}
        for kind, file in _split_texts(sources, split, work, report, progress=progress).items():
            started = time.perf_counter()
            strings, table = train_vectors(file, training[kind], name=kind, progress=progress)
            write_vectors(file.path.with_suffix(".vec"), strings, table)
            file.path.unlink()
            vectors[kind] = frozenset(strings)
            seconds = round(time.perf_counter() - started, 1)
            made = KindReport(kind, f"{kind}.vec", len(strings), len(file.counts), file.tokens, seconds)
            report.kinds.append(made)
            note(made)
            file.counts.clear()
        if WORDS in vectors:
            known = {JIEBA: split.words.dictionary} if isinstance(split.words, LexiconSplitter) else {}
            wanted: dict[str, Iterable[str]] = {**known, **lexicons, **lists}
            report.coverage += [cover_words(source, words, vectors[WORDS]) for source, words in wanted.items()]
            if report.coverage:
                missing = dict.fromkeys(word for part in report.coverage for word in part.missing)
                (work / UNCOVERED).write_text("".join(f"{word}\n" for word in missing), encoding="utf8")
        for path in filter(is_corpus, cover):
            report.coverage += cover_texts(str(path), read_texts(path), split, vectors)
        # What the summary says about kinds that this run did not make stays.
        summary = _old_summary(output / SUMMARY)
        for part in report.kinds:
            summary[part.kind] = {
                **_without(part, "kind"),
                "inputs": list(sources),
                "text": asdict(reading),
                "training": asdict(training[part.kind]),
                "coverage": [_without(each, "kind", "missing") for each in report.coverage if each.kind == part.kind],
                "versions": installed_versions("spacy_tener", "gensim", "jieba", "numpy", "spacy"),
            }
        write_text(work / SUMMARY, json.dumps(summary, ensure_ascii=False, indent=2) + "\n")
    return report


def _check(output: Path, training: Mapping[str, TrainingSettings], cover: Sequence[str | Path]) -> None:
    """Check inputs and settings before the work begins."""
    unknown = sorted(set(training) - set(KINDS))
    if unknown or not training:
        raise RemedyError(f"Unknown kinds of vectors: {unknown}", f"Use some of: {', '.join(KINDS)}.")
    check_folder(output)
    for path in map(str, cover):
        if not Path(path).exists():
            raise InputError(path, "there is no such file", "Check the path.")
        if WORDS not in training and not is_corpus(path):
            raise RemedyError(f"{path} is a list of words, but these get no vectors", "Add words to --kinds.")
    word2vec()


def _split_texts(
    sources: Sequence[str], split: TextSplitter, work: Path, report: VectorsReport, *, progress: bool
) -> dict[str, StringFile]:
    """Write the strings of all texts, each kind to a file."""
    started = time.perf_counter()
    with ExitStack() as stack:
        files = {kind: stack.enter_context(StringFile(work / f"{kind}.txt")) for kind in split.kinds}
        for source in sources:
            shown = {"desc": f"Splitting {source}", "disable": None if progress else True}
            for text in tqdm(read_texts(source), unit=" lines", unit_scale=True, leave=False, **shown):
                report.characters += len(text)
                for kind, strings in split(text).items():
                    files[kind].add(strings)
    if not all(file.tokens for file in files.values()):
        raise InputError(", ".join(sources), "there is no text", "Give files with a paragraph on each line.")
    report.seconds = time.perf_counter() - started
    return files


def cover_words(source: str, words: Iterable[str], vectors: Collection[str]) -> Coverage:
    """Compare vectors with the words of a lexicon that have two characters and more."""
    wanted = [word for word in words if len(word) > 1]
    missing = tuple(word for word in wanted if word not in vectors)
    return Coverage(source, WORDS, len(wanted), len(wanted) - len(missing), missing)


def cover_texts(
    source: str, texts: Iterable[str], split: TextSplitter, vectors: Mapping[str, Collection[str]]
) -> list[Coverage]:
    """Compare vectors, given by their kind, with all strings of some texts."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in split.kinds}
    for text in texts:
        for kind, strings in split(text).items():
            counts[kind].update(strings)
    coverage: list[Coverage] = []
    for kind, found in counts.items():
        missing = {string: count for string, count in found.most_common() if string not in vectors[kind]}
        n, total = len(found), found.total()
        covered = total - sum(missing.values())
        coverage.append(Coverage(source, kind, n, n - len(missing), tuple(missing), total, covered))
    return coverage


def _without(part: KindReport | Coverage, *names: str) -> dict[str, Any]:
    return {name: value for name, value in vars(part).items() if name not in names and value is not None}


def _old_summary(path: Path) -> dict[str, Any]:
    try:
        old = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return {}
    return {kind: old[kind] for kind in KINDS if kind in old} if isinstance(old, dict) else {}
