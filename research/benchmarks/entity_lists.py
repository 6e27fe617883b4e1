r"""Benchmark entity lists: recall of the list's words, speed compared with an `entity_ruler`, and the effect on F1.

    python research/benchmarks/entity_lists.py --texts assets/raw/zh-weibo-posts.txt.xz --lists assets/lexicons \
        --corpus weibo --data corpus --runs training --system tener+segment

The file of texts contains one text per line. The lists are those of THUOCL.
"""

from __future__ import annotations

import argparse
import gc
import lzma
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_tener.errors import UserError
from spacy_tener.features.keys import simplify
from spacy_tener.features.lexicon import is_valid_word
from spacy_tener.features.lexicon_sources import read_list

N_TEXTS, N_WORDS, TIMED = 10_000, 100_000, 2_000
LABEL, COMPONENTS = "LISTED", ("entity_lists", "entity_ruler")
LISTS = ("diming", "lishimingren", "caijing", "car", "food", "medical", "IT", "law")
NOTE = (
    "Recall: {texts:,} posts and a list of {words:,} words of THUOCL, all entities. A plain search finds every word "
    "that cuts no word of letters and no number, in either script. It keeps the longest first, then by the list's "
    "order. Speed: `nlp.pipe` over {timed:,} posts, once with the component and once without, in {rounds} turns (A B "
    "A B), CPU time on one thread. Made-up names are of 2 to 4 of the posts' characters, as a directory of firms or "
    "persons has them. An `entity_ruler` has the same words as phrase patterns. F1 on {corpus}'s test part: the list "
    "has the {names} strings of 2 characters or more that the training part annotates as organisations; {mentions} of "
    "the test part's {gold} organisations are in it. As evidence, where the system reads words, they have the tag nt. "
    "Seeds {seeds}."
)


def main() -> None:
    args = parse_args()
    runs = [args.runs / args.corpus / args.system / seed / "model-best" for seed in args.seeds.split(",")]
    words = listed_words(args.lists)
    texts = list(islice(read_texts(args.texts), N_TEXTS))
    nlp = spacy.load(runs[0])
    lac = spacy.blank("zh")
    lac.add_pipe("lac")
    pipelines = {args.system: nlp, "lac": lac, "spacy.blank": spacy.blank("zh")}
    lists = {"no words": [], "THUOCL": words, "made-up names": made_up(texts, len(words))}
    tables = [recall_table(nlp, texts, words), speed_table(pipelines, texts[:TIMED], lists, args.rounds)]
    train, test = (read(args.data / args.corpus / f"{part}.spacy") for part in ("train", "test"))
    names = organisations(train)
    tables.append(score_table([spacy.load(run) for run in runs], test, names))
    gold = [ent for doc in test for ent in doc.ents if ent.label_.startswith("ORG")]
    note = NOTE.format(
        texts=len(texts),
        words=len(words),
        timed=len(texts[:TIMED]),
        rounds=args.rounds,
        corpus=args.corpus,
        names=len(names),
        mentions=sum(ent.text in names for ent in gold),
        gold=len(gold),
        seeds=args.seeds,
    )
    out = args.out or _report.RESULTS / f"entity-lists-{args.corpus}.md"
    _report.write(out, f"Lists of entities: {args.corpus}", note, "\n\n".join(tables))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--lists", type=Path, required=True, help="holds THUOCL_*.txt")
    parser.add_argument("--corpus", default="weibo", help="directory under --data and --runs")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{train,test}.spacy")
    parser.add_argument("--runs", type=Path, required=True, help="holds CORPUS/SYSTEM/SEED/model-best")
    parser.add_argument("--system", default="tener+segment")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, help="default: research/results/entity-lists-CORPUS.md")
    return parser.parse_args()


def read_texts(path: Path) -> Iterator[str]:
    with lzma.open(path, "rt", encoding="utf8") as file:
        yield from (line.strip() for line in file if line.strip())


def read(path: Path) -> list[Doc]:
    return list(DocBin().from_disk(path).get_docs(spacy.blank("zh").vocab))


def listed_words(folder: Path) -> list[str]:
    files = [folder / f"THUOCL_{name}.txt" for name in LISTS]
    words = dict.fromkeys(entry.word for path in files for entry in read_list(path) if is_valid_word(entry.word))
    return list(words)[:N_WORDS]


def plain_search(text: str, rank: Mapping[str, int], longest: int) -> set[tuple[int, int]]:
    """Find the words of a list by looking up all substrings of a text, as a reference for the component."""
    spans = [
        (start, end)
        for start in range(len(text))
        for end in range(start + 2, min(start + longest, len(text)) + 1)
        if text[start:end] in rank and not (cuts(text, start) or cuts(text, end))
    ]
    chosen: set[tuple[int, int]] = set()
    taken: set[int] = set()
    for start, end in sorted(spans, key=lambda span: (span[0] - span[1], rank[text[slice(*span)]], span[0])):
        if taken.isdisjoint(range(start, end)):
            taken.update(range(start, end))
            chosen.add((start, end))
    return chosen


def cuts(text: str, edge: int) -> bool:
    """Return whether a boundary lies inside a Latin word or a number."""
    before, after = text[max(edge - 2, 0) : edge], text[edge : edge + 2]
    if not before or not after:
        return False
    if is_letter(before[-1]) and is_letter(after[0]):
        return True
    is_point = before[-1] in ".," and len(before) == 2 and before[0].isdecimal() and after[0].isdecimal()
    return is_point or (after[0] in ".," and before[-1].isdecimal() and after[1:].isdecimal())


def is_letter(char: str) -> bool:
    return char.isalnum() and (char < "\u0e00" or "\u1e00" <= char < "\u2000" or "\uff10" <= char <= "\uff5a")


def recall_table(nlp: Language, texts: Sequence[str], words: Sequence[str]) -> str:
    name = add_words(nlp, "entity_lists", words)
    rank, longest = {simplify(word): index for index, word in enumerate(words)}, max(map(len, words))
    expected = found = right = 0
    for doc in nlp.pipe(texts):
        wanted = plain_search(simplify(doc.text), rank, longest)
        listed = {(ent.start_char, ent.end_char) for ent in doc.ents if ent.label_ == LABEL}
        expected, found, right = expected + len(wanted), found + len(listed), right + len(wanted & listed)
    nlp.remove_pipe(name)
    row = [f"{expected:,}", f"{found:,}", f"{100 * right / expected:.2f} %", f"{100 * right / found:.2f} %"]
    return _report.table(("words in the texts", "entities from the list", "recall", "precision"), [row])


def made_up(texts: Sequence[str], n: int) -> list[str]:
    """Return n made-up names of 2 to 4 Chinese characters, sampled by their frequencies in the texts."""
    characters = [char for text in texts for char in text if "\u4e00" <= char <= "\u9fff"]
    random, names = Random(0), dict[str, None]()
    while len(names) < n:
        names["".join(random.choices(characters, k=random.randint(2, 4)))] = None
    return list(names)


def speed_table(
    pipelines: Mapping[str, Language], texts: Sequence[str], lists: Mapping[str, Sequence[str]], rounds: int
) -> str:
    def timed(nlp: Language, without: Sequence[str]) -> tuple[float, int]:
        with nlp.select_pipes(disable=without):
            list(nlp.pipe(texts[:50]))
            gc.collect()
            start = time.process_time()
            found = sum(ent.label_ == LABEL for doc in nlp.pipe(texts) for ent in doc.ents)
            return time.process_time() - start, found

    characters, rows = sum(map(len, texts)), []
    for (system, nlp), component, (name, words) in product(pipelines.items(), COMPONENTS, lists.items()):
        if component == "entity_ruler" and name != "THUOCL":
            continue
        added = add_words(nlp, component, words)
        turns = [(timed(nlp, [added]), timed(nlp, [])) for _ in range(rounds + 1)][1:]  # the first round is a warm-up
        nlp.remove_pipe(added)
        seconds = [[turn[side][0] for turn in turns] for side in (0, 1)]
        speeds = [f"{characters / statistics.median(column):,.0f}" for column in seconds]
        ratios = [100 * (b / a - 1) for a, b in zip(*seconds, strict=True)]
        slower = f"{100 * (statistics.median(seconds[1]) / statistics.median(seconds[0]) - 1):+.1f} %"
        spread = f"{min(ratios):+.1f} to {max(ratios):+.1f} %"
        label = f"{len(words):,} of {name}" if words else name
        rows.append([system, f"`{component}`", label, f"{turns[0][1][1]:,}", *speeds, slower, spread])
    header = (
        "pipeline",
        "component",
        "list",
        "entities from it",
        "characters/s without",
        "with",
        "slower by",
        "all turns",
    )
    return _report.table(header, rows)


def add_words(nlp: Language, component: str, words: Sequence[str]) -> str:
    """Insert a component with a list of words at the start of a pipeline, and return its name."""
    pipe: Any = nlp.add_pipe(component, first=True)
    if component == "entity_lists":
        pipe.add(words, LABEL)
    else:
        pipe.add_patterns([{"label": LABEL, "pattern": word} for word in words])
    return component


def organisations(docs: Sequence[Doc]) -> dict[str, str]:
    """Return the strings that are annotated as organisations, with their most frequent labels."""
    labels: dict[str, Counter[str]] = {}
    for doc in docs:
        for ent in doc.ents:
            if ent.label_.startswith("ORG") and is_valid_word(ent.text):
                labels.setdefault(ent.text, Counter())[ent.label_] += 1
    return {name: found.most_common(1)[0][0] for name, found in labels.items()}


def score_table(pipelines: Sequence[Language], test: Sequence[Doc], names: Mapping[str, str]) -> str:
    proper = {name: label for name, label in names.items() if label.endswith("NAM")}
    changes: dict[str, Callable[[Any, Any], None]] = {
        "none": lambda lists, lexicon: None,
        "as evidence": lambda lists, lexicon: lexicon.add(list(names), "nt"),
        "as entities": lambda lists, lexicon: lists.add(names),
        "as entities, names only (ORG.NAM)": lambda lists, lexicon: lists.add(proper),
    }
    rows = []
    for kind, change in changes.items():
        runs = []
        for nlp in pipelines:
            lists: Any = nlp.add_pipe("entity_lists", first=True)
            ner: Any = nlp.get_pipe(nlp.pipe_names[-1])
            try:
                change(lists, ner.lexicon)
            except UserError:  # the system has no lexicon
                break
            finally:
                docs = list(nlp.pipe(doc.text for doc in test))
                nlp.remove_pipe("entity_lists")
            ner.lexicon.clear()
            runs.append([*scores(test, docs, "ORG"), scores(test, docs, "")[2]])
        else:
            means = (_report.mean_sd([100 * value for value in column]) for column in zip(*runs, strict=True))
            rows.append([kind, *means])
    return _report.table(("list", "organisations: precision", "recall", "F1", "all: F1"), rows)


def scores(gold: Sequence[Doc], found: Sequence[Doc], kind: str) -> tuple[float, float, float]:
    """Return precision, recall and F1 of entities whose label starts with `kind`."""
    right = n_gold = n_found = 0
    for expected, doc in zip(gold, found, strict=True):
        sides = [
            {(ent.start_char, ent.end_char, ent.label_) for ent in side.ents if ent.label_.startswith(kind)}
            for side in (expected, doc)
        ]
        right, n_gold, n_found = right + len(sides[0] & sides[1]), n_gold + len(sides[0]), n_found + len(sides[1])
    return right / max(n_found, 1), right / max(n_gold, 1), 2 * right / max(n_gold + n_found, 1)


if __name__ == "__main__":
    main()
