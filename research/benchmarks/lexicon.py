"""Benchmark lexicon matching: our trie and an Aho-Corasick automaton, and the cost of building and loading a lexicon.

    pip install ahocorasick_rs
    python research/benchmarks/lexicon.py --text assets/raw/zh-laws.txt.xz

The file contains one paragraph per line. There are four lexicons: the 50,000 most frequent words of jieba's dictionary;
the whole dictionary; one million words, jieba's and made-up names of 2 to 4 characters of the text; and 1.3 million
words, jieba's and distinct strings of 2 to 5 characters from the start of the text. The end of the text is searched.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import lzma
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeVar

import _report
import numpy as np
import spacy
from ahocorasick_rs import AhoCorasick  # type: ignore[import-not-found,unused-ignore]
from numpy.typing import NDArray
from spacy.tokens import Doc

from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.lexicon_sources import read_list
from spacy_tener.features.tokens import join_texts
from spacy_tener.processes import cached_property

SIZES = (50_000, 0, 1_000_000, 1_300_000)  # 0: all words of jieba
OF_NAMES = 1_000_000
BATCH = 64
SEARCHED, SOURCE = 500_000, 6_000_000
Result = TypeVar("Result")
NOTE = (
    "One core. CPU time; medians over {rounds} rounds in which both take turns. Text: {chars:,} characters of "
    "{text}, as {docs:,} Docs of single characters, {batch} at a time. Docs to arrays: `Lexicon.find`, everything "
    "included, with max_words=8. The search alone: from code points to arrays of words and places. Memory: what it "
    "adds to the process. A million words are jieba's and made-up names of 2 to 4 of the text's characters, as a "
    "directory of persons or firms has them. 1.3 million are jieba's and strings of 2 to 5 characters from the start "
    "of the same text, which are found in it more often than any real words would be. The trie is the package's, in "
    "NumPy; the automaton is that of ahocorasick_rs {version}, in Rust. Both give the same matches, which is checked "
    "before measuring."
)
LOADING = (
    "Loading: `Lexicon.from_bytes`, then the trie, which the first `find` builds. CPU time in a process of its own, "
    "medians over {rounds} rounds. Words in memory: the strings and the arrays beside them, by their own sizes."
)


class Automaton:
    """An Aho-Corasick automaton with the interface of the trie."""

    def __init__(self, words: Mapping[str, int]) -> None:
        forms = sorted(words)  # building is three times as fast if words are sorted, since neighbours share prefixes
        self._indices = np.array([words[form] for form in forms])
        self._automaton = AhoCorasick(forms, store_patterns=False)
        self._reach = max(map(len, forms)) - 1

    def find(self, codes: NDArray[np.uint32], start: int, stop: int) -> NDArray[np.int64]:
        text = codes[start : stop + self._reach].tobytes().decode("utf-32-le")
        matches = self._automaton.find_matches_as_indexes(text, overlapping=True)
        flat = np.fromiter(chain.from_iterable(matches), dtype=np.int64, count=3 * len(matches))
        forms, firsts, ends = flat.reshape(-1, 3).T
        found = np.stack((firsts + start, ends + start, self._indices[forms]))
        return found[:, firsts < stop - start]


class AutomatonLexicon(Lexicon):
    @cached_property
    def trie(self) -> Any:
        return Automaton(self._indices_of_forms())


KINDS: dict[str, type[Lexicon]] = {"trie": Lexicon, "automaton": AutomatonLexicon}


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    lines = read_lines(args.text)
    docs = make_docs(lines)
    matching, loading = [], []
    for n_words in SIZES:
        words = make_words(lines, n_words)
        matching += matching_rows(words, docs, args.rounds)
        loading.append(loading_row(words, args.rounds))
    chars = sum(map(len, docs))
    note = NOTE.format(
        version=version("ahocorasick_rs"),
        rounds=args.rounds,
        chars=chars,
        text=args.text.name,
        docs=len(docs),
        batch=BATCH,
    )
    header = ["words", "", "build, s", "memory, MB", "search alone, M chars/s", "Docs to arrays, M chars/s"]
    header += ["matches per character"]
    load_header = ["words", "saved, MB", "from_bytes, s", "trie, s", "together, s", "words in memory, MB"]
    tables = [
        _report.table(header, matching),
        LOADING.format(rounds=args.rounds),
        _report.table(load_header, loading),
    ]
    _report.write(args.out, "Lexicon matching", note, *tables)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", type=Path, required=True, help="a paragraph on each line, .xz or plain")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "lexicon.md")
    return parser.parse_args()


# Material


def read_lines(path: Path) -> list[str]:
    unpack = lzma.open if path.suffix == ".xz" else open
    with unpack(path, "rt", encoding="utf8") as stream:
        return str(stream.read(SOURCE)).splitlines()


def make_docs(lines: list[str]) -> list[Doc]:
    """Return Docs with the paragraphs at the end of the text."""
    nlp, docs, remaining = spacy.blank("zh"), list[Doc](), SEARCHED
    for line in filter(None, reversed(lines)):
        docs.append(nlp.make_doc(line))
        remaining -= len(line)
        if remaining <= 0:
            break
    return docs


def make_words(lines: list[str], n_words: int) -> list[str]:
    entries = [
        entry for entry in read_list(jieba_path(), has_tags=True, allow_jieba_format=True) if len(entry.word) > 1
    ]
    if n_words and n_words < len(entries):
        entries = sorted(entries, key=lambda entry: -(entry.frequency or 0))[:n_words]
    words = dict.fromkeys(entry.word for entry in entries)
    text = "".join(lines[: len(lines) * 4 // 5])
    strings: Iterable[str] = (
        text[start : start + length] for length in (2, 3, 4, 5) for start in range(0, len(text) - 5, 3)
    )
    if n_words == OF_NAMES:
        strings = made_up_names(text)
    missing = max(n_words - len(words), 0)
    words.update(dict.fromkeys(islice(distinct(strings, words), missing)))
    return list(words)


def distinct(strings: Iterable[str], excluded: Mapping[str, None]) -> Iterator[str]:
    skipped = set(excluded)
    for string in strings:
        if string not in skipped:
            skipped.add(string)
            yield string


def made_up_names(text: str) -> Iterator[str]:
    chance = random.Random(0)
    chars = [char for char in text[:200_000] if "\u4e00" <= char <= "\u9fff"]
    while True:
        yield "".join(chance.choices(chars, k=chance.choice((2, 3, 3, 4))))


def jieba_path() -> Path:
    spec = find_spec("jieba")
    if spec is None or spec.origin is None:
        raise SystemExit("The words are jieba's: pip install jieba")
    return Path(spec.origin).parent / "dict.txt"


# Matching


def matching_rows(words: list[str], docs: list[Doc], rounds: int) -> list[list[str]]:
    costs = {name: in_child(partial(build_cost, kind, words)) for name, kind in KINDS.items()}
    lexicons = {name: kind(words) for name, kind in KINDS.items()}
    batches = [docs[start : start + BATCH] for start in range(0, len(docs), BATCH)]
    texts = [join_texts(batch).simplified.codes for batch in batches]
    n_found = check_equal(list(lexicons.values()), batches)
    searches = {name: partial(search_all, lexicon, texts) for name, lexicon in lexicons.items()}
    finds = {name: partial(find_all, lexicon, batches) for name, lexicon in lexicons.items()}
    search_seconds, find_seconds = (_report.median_seconds(tasks, rounds) for tasks in (searches, finds))
    chars = sum(map(len, docs))
    return [
        [
            f"{len(words):,}",
            name,
            f"{costs[name][0]:.2f}",
            f"{costs[name][1]:.0f}",
            f"{chars / search_seconds[name] / 1e6:.2f}",
            f"{chars / find_seconds[name] / 1e6:.2f}",
            f"{n_found / chars:.2f}",
        ]
        for name in lexicons
    ]


def search_all(lexicon: Lexicon, texts: list[NDArray[np.uint32]]) -> None:
    for codes in texts:
        lexicon.trie.find(codes, 0, codes.size)


def find_all(lexicon: Lexicon, batches: list[list[Doc]]) -> None:
    for batch in batches:
        lexicon.find(join_texts(batch), 8)


def check_equal(lexicons: list[Lexicon], batches: list[list[Doc]]) -> int:
    """Check that all lexicons find the same words at the same positions. Return the number of matches."""
    n_found = 0
    for batch in batches:
        first, *rest = [lexicon.find(join_texts(batch)) for lexicon in lexicons]
        for found in rest:
            for field in ("words", "heads", "tails", "counts"):
                np.testing.assert_array_equal(getattr(first, field), getattr(found, field))
        n_found += first.words.size
    return n_found


# Building and loading


def build_cost(kind: type[Lexicon], words: list[str]) -> tuple[float, float]:
    """Return the seconds to build a trie, and the memory of the trie in megabytes."""
    lexicon = kind(words)
    before, start = memory(), time.process_time()
    _ = lexicon.trie
    seconds = time.process_time() - start
    return seconds, memory() - before


def loading_row(words: list[str], rounds: int) -> list[str]:
    data = Lexicon(words).to_bytes()
    load, build, megabytes = in_child(partial(load_costs, data, rounds))
    cells = [f"{load:.2f}", f"{build:.2f}", f"{load + build:.2f}", f"{megabytes:.0f}"]
    return [f"{len(words):,}", f"{len(data) / 1e6:.1f}", *cells]


def load_costs(data: bytes, rounds: int) -> tuple[float, float, float]:
    """Return the median seconds to load a lexicon and to build its trie, and the size of its words in megabytes."""
    costs = [load_cost(data) for _ in range(rounds)]
    loads, builds, megabytes = zip(*costs, strict=True)
    return statistics.median(loads), statistics.median(builds), megabytes[0]


def load_cost(data: bytes) -> tuple[float, float, float]:
    start = time.process_time()
    lexicon = Lexicon.from_bytes(data)
    loaded = time.process_time()
    _ = lexicon.trie
    built = time.process_time()
    arrays = [value for value in vars(lexicon).values() if isinstance(value, np.ndarray)]
    size = sum(map(sys.getsizeof, [lexicon.words, *lexicon.words])) + sum(array.nbytes for array in arrays)
    return loaded - start, built - loaded, size / 1e6


def in_child(work: Callable[[], Result]) -> Result:
    """Run a function in a new process, so that its memory can be measured."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work).result()


def memory() -> float:
    """Return the memory of this process in megabytes, after unused memory was returned to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
