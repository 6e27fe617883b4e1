"""Raw text to files of vectors that the embedders read: `chars.vec`, `bigrams.vec` and `words.vec`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ...errors import InputError, RemedyError
from ...files import check_folder, staged, write_text
from ...manifest import installed_versions
from .coverage import Coverage, cover_texts, cover_words
from .raw_text import is_corpus, read_texts, read_words
from .strings import BIGRAMS, CHARS, KINDS, WORDS, LexiconSplitter, TextSettings, TextSplitter
from .word_vectors import StringFile, TrainingSettings, train_vectors, word2vec, write_vectors

MIN_COUNTS = {CHARS: 1, BIGRAMS: 2, WORDS: 2}
"""How often a string must occur to get a vector, where nothing else is asked."""
SUMMARY, UNCOVERED = "vectors.json", "words.uncovered"
JIEBA = "jieba's dictionary"


@dataclass
class KindReport:
    """What became of one kind of strings. tokens: occurrences in the text; distinct: before `min_count`."""

    kind: str
    path: Path
    distinct: int
    tokens: int
    strings: int
    seconds: float

    @property
    def described(self) -> dict[str, Any]:
        """As the summary has it."""
        counts = {"strings": self.strings, "distinct": self.distinct, "tokens": self.tokens}
        return {"file": self.path.name, **counts, "seconds": round(self.seconds, 1)}


@dataclass
class VectorsReport:
    """What was made of the text. seconds: for reading it, splitting it and counting."""

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
    words = (word for lexicon in lexicons.values() for word in lexicon)
    split = TextSplitter(training, reading, words)
    report = VectorsReport()
    with staged(output) as work:
        files = _split_texts(sources, split, work, report, progress=progress)
        vectors = {}
        for kind, file in files.items():
            vectors[kind] = _train(file, kind, training[kind], output, report, progress=progress)
            note(report.kinds[-1])
        if WORDS in vectors:
            known = {JIEBA: split.words.dictionary} if isinstance(split.words, LexiconSplitter) else {}
            wanted: dict[str, Iterable[str]] = {**known, **lexicons, **lists}
            report.coverage += [cover_words(source, words, vectors[WORDS]) for source, words in wanted.items()]
            missing = dict.fromkeys(word for part in report.coverage for word in part.missing)
            if report.coverage:
                (work / UNCOVERED).write_text("".join(f"{word}\n" for word in missing), encoding="utf8")
        for path in filter(is_corpus, cover):
            report.coverage += cover_texts(str(path), read_texts(path), split, vectors)
        made = {
            part.kind: {
                **part.described,
                "inputs": list(sources),
                "text": asdict(reading),
                "training": asdict(training[part.kind]),
                "coverage": [each.described for each in report.coverage if each.kind == part.kind],
                "versions": installed_versions("spacy_tener", "gensim", "jieba", "numpy", "spacy"),
            }
            for part in report.kinds
        }
        # What it says about kinds that this run did not make stays.
        write_text(
            work / SUMMARY, json.dumps({**_old_summary(output / SUMMARY), **made}, ensure_ascii=False, indent=2) + "\n"
        )
    return report


def _check(output: Path, training: Mapping[str, TrainingSettings], cover: Sequence[str | Path]) -> None:
    """Refuse early what would fail late."""
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


def _train(
    file: StringFile, kind: str, settings: TrainingSettings, output: Path, report: VectorsReport, *, progress: bool
) -> frozenset[str]:
    started = time.perf_counter()
    strings, table = train_vectors(file, settings, name=kind, progress=progress)
    write_vectors(file.path.with_suffix(".vec"), strings, table)
    file.path.unlink()
    seconds = time.perf_counter() - started
    path = output / f"{kind}.vec"
    report.kinds.append(KindReport(kind, path, len(file.counts), file.tokens, len(strings), seconds))
    file.counts.clear()
    return frozenset(strings)


def _old_summary(path: Path) -> dict[str, Any]:
    try:
        old = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError):
        return {}
    return {kind: old[kind] for kind in KINDS if kind in old} if isinstance(old, dict) else {}
