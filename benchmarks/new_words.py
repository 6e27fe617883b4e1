"""Words after training: names that training never showed, before and after they are given to the trained pipeline.

    python benchmarks/new_words.py --corpus weibo --data corpus --work words --systems tener+segment,flat+lexicon-tags

Held out are all names of the test part that jieba's dictionary lacks: sentences with one of them are taken out of the
training and dev parts, and the lexicon has none of them. The rest is trained as ever (`spacy tener grid`); then the
names are added to each pipeline, with their tags, and in a second round wrong words with them.
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_tener.features.lexicon.sources import read_jieba

HERE = Path(__file__).parent
LABELS = {
    "nr": ("PER.NAM", "NAME", "PER", "PERSON"),
    "ns": ("GPE.NAM", "LOC.NAM", "GPE", "LOC"),
    "nt": ("ORG.NAM", "ORG"),
}
TAGS = {label: tag for tag, labels in LABELS.items() for label in labels}
WRONG_SHARE = 0.2
PARTS = ("train", "dev", "test")
Names = Mapping[str, str]
Entity = tuple[int, int, str]
NOTE = (
    "Held out: the {names} distinct names of the test part, of 2 characters or more, that jieba's dictionary lacks; of "
    "the training part {train} of {all_train} sentences are left, of the dev part {dev} of {all_dev}. Chosen on that "
    "dev part; all else as in the accuracy tables. Held-out names: gold entities that are one of these, {mentions} in "
    "the test part. Other entities: all others, and predictions that touch no held-out name. Wrong words: strings of 2 "
    "or 3 characters of the test part that touch no entity, with the tag of a person, place or organisation drawn at "
    "random; they make up a fifth of the list. Means over the seeds {seeds}{deviation}."
)
HEADER = ("system", "words added", "held-out names: recall", "precision", "other entities: precision", "recall", "F1")


@dataclass(frozen=True)
class Counts:
    """Of gold entities and predictions."""

    right: int
    predicted: int
    gold: int

    @property
    def precision(self) -> float:
        return self.right / max(self.predicted, 1)

    @property
    def recall(self) -> float:
        return self.right / max(self.gold, 1)

    @property
    def f1(self) -> float:
        return 2 * self.right / max(self.predicted + self.gold, 1)


def main() -> None:
    args = parse_args()
    parts = {part: read(args.data / args.corpus / f"{part}.spacy") for part in PARTS}
    names = held_out(parts["test"])
    kept = {part: parts[part] if part == "test" else without(parts[part], names) for part in PARTS}
    for part, docs in kept.items():
        path = args.work / "corpus" / args.corpus / f"{part}.spacy"
        path.parent.mkdir(parents=True, exist_ok=True)
        DocBin(docs=docs, store_user_data=True).to_disk(path)
    train(args)
    lists = {
        "none": {},
        "the names": names,
        "the names, and wrong words": {**wrong_words(parts["test"], names), **names},
    }
    rows = [row for system in args.systems.split(",") for row in system_rows(args, system, lists, parts["test"], names)]
    sizes = {f"all_{part}": len(parts[part]) for part in PARTS} | {part: len(kept[part]) for part in PARTS}
    mentions = sum(1 for doc in parts["test"] for start, end, _ in entities(doc) if doc.text[start:end] in names)
    deviation = ", with the standard deviation" if "," in args.seeds else ""
    note = NOTE.format(names=len(names), mentions=mentions, seeds=args.seeds, deviation=deviation, **sizes)
    out = args.out or HERE / "results" / f"new-words-{args.corpus}.md"
    _report.write(out, f"Words after training: {args.corpus}", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True, help="directory under --data, and the config's name")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--work", type=Path, required=True, help="where the data without the names and the runs go")
    parser.add_argument("--systems", default="tener+segment,flat+lexicon-tags,flat+lexicon-tags+segment")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--settings", nargs="*", default=[], help="section.key=value, of the trainings")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/new-words-CORPUS.md")
    return parser.parse_args()


def read(path: Path) -> list[Doc]:
    return list(DocBin().from_disk(path).get_docs(spacy.blank("zh").vocab))


def entities(doc: Doc) -> list[Entity]:
    return [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]


def held_out(docs: Iterable[Doc]) -> dict[str, str]:
    """The names with the tags of their labels, the most frequent of several."""
    known = read_jieba(0, 100, True)
    found: dict[str, Counter[str]] = {}
    for doc in docs:
        for start, end, label in entities(doc):
            name = doc.text[start:end]
            if label in TAGS and len(name) > 1 and name not in known:
                found.setdefault(name, Counter())[TAGS[label]] += 1
    return {name: tags.most_common(1)[0][0] for name, tags in found.items()}


def without(docs: Sequence[Doc], names: Names) -> list[Doc]:
    return [doc for doc in docs if not any(name in doc.text for name in names)]


def wrong_words(docs: Sequence[Doc], names: Names) -> dict[str, str]:
    """So many that they are a fifth of a list with the names."""
    chance = random.Random(0)
    wanted = round(len(names) * WRONG_SHARE / (1 - WRONG_SHARE))
    words: dict[str, str] = {}
    while len(words) < wanted:
        doc = chance.choice(docs)
        start = chance.randrange(len(doc.text))
        end = start + chance.choice((2, 3))
        text = doc.text[start:end]
        touched = any(start < last and first < end for first, last, _ in entities(doc))
        if len(text) == end - start and all("\u4e00" <= char <= "\u9fff" for char in text) and not touched:
            words[text] = chance.choice(("nr", "ns", "nt"))
    return words


def train(args: argparse.Namespace) -> None:
    command = [sys.executable, "-m", "spacy", "tener", "grid", str(args.work / "training"), "--corpora", args.corpus]
    command += ["--systems", args.systems, "--seeds", args.seeds, "--data", str(args.work / "corpus")]
    subprocess.run([*command, *(part for setting in args.settings for part in ("--set", setting))], check=True)


def system_rows(
    args: argparse.Namespace, system: str, lists: Mapping[str, Names], docs: Sequence[Doc], names: Names
) -> list[list[str]]:
    """One for each list of words."""
    scored: dict[str, list[tuple[Counts, Counts]]] = {name: [] for name in lists}
    for seed in args.seeds.split(","):
        nlp = spacy.load(args.work / "training" / args.corpus / system / seed / "model-best")
        component: Any = nlp.get_pipe("tener_ner")
        for name, words in lists.items():
            component.lexicon.clear()
            component.lexicon.add(words)
            scored[name].append(score(nlp, docs, names))
    return [[system, name, *cells(runs)] for name, runs in scored.items()]


def score(nlp: Language, docs: Sequence[Doc], names: Names) -> tuple[Counts, Counts]:
    """Of held-out names, and of other entities."""
    held, others = [], []
    for gold, predicted in zip(docs, nlp.pipe(doc.text for doc in docs), strict=True):
        wanted, found = set(entities(gold)), set(entities(predicted))
        listed = {entity for entity in wanted if gold.text[entity[0] : entity[1]] in names}
        touching = {one for one in found if any(one[0] < end and start < one[1] for start, end, _ in listed)}
        held.append((len(listed & found), len(touching), len(listed)))
        others.append((len((wanted - listed) & found), len(found - touching), len(wanted - listed)))
    return Counts(*map(sum, zip(*held, strict=True))), Counts(*map(sum, zip(*others, strict=True)))


def cells(runs: Sequence[tuple[Counts, Counts]]) -> list[str]:
    columns = [
        [value for held, other in runs for value in [row(held, other)[column]]] for column in range(len(HEADER) - 2)
    ]
    return [percent(column) for column in columns]


def row(held: Counts, other: Counts) -> list[float]:
    return [held.recall, held.precision, other.precision, other.recall, other.f1]


def percent(values: Sequence[float]) -> str:
    mean = f"{100 * statistics.mean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


if __name__ == "__main__":
    main()
