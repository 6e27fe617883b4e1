"""Measure the effect of new words on a trained pipeline: names that were not in the training set are added to the
lexicon.

    python research/benchmarks/new_words.py --corpus weibo --data corpus --runs training --systems tener+segment,flat

New names are names in the test set that occur neither in the training texts nor in jieba's dictionary. They are added
to each trained pipeline with their tags, and in a second round together with wrong words.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin

from spacy_tener.features.lexicon_sources import read_jieba

LABELS = {
    "nr": ("PER.NAM", "NAME", "PER", "PERSON"),
    "ns": ("GPE.NAM", "LOC.NAM", "GPE", "LOC"),
    "nt": ("ORG.NAM", "ORG"),
}
TAGS = {label: tag for tag, labels in LABELS.items() for label in labels}
WRONG_SHARE = 0.2
Names = Mapping[str, str]
Entity = tuple[int, int, str]
NOTE = (
    "New names: the {names} distinct names of the test part, of 2 characters or more, that are nowhere in the training "
    "text nor in jieba's dictionary; {mentions} gold entities of the test part are one of these. Their tags are those "
    "of their labels, nr, ns or nt, for models that know tags. Other entities: all others, and predictions that touch "
    "no new name. Wrong words: strings of 2 or 3 characters of the test part that touch no entity, with a tag drawn at "
    "random; they make up a fifth of the list, and many are everyday words. Seeds {seeds}{deviation}."
)
HEADER = ("system", "words added", "new names: recall", "precision", "other entities: precision", "recall", "F1")


@dataclass(frozen=True)
class Counts:
    """Counts of correct predictions, of predicted entities and of gold entities."""

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
    train, test = (read(args.data / args.corpus / f"{part}.spacy") for part in ("train", "test"))
    names = new_names(test, "\n".join(doc.text for doc in train))
    lists = {"none": {}, "the names": names, "the names, and wrong words": {**wrong_words(test, names), **names}}
    rows = [row for system in args.systems.split(",") for row in system_rows(args, system, lists, test, names)]
    mentions = sum(doc.text[start:end] in names for doc in test for start, end, _ in entities(doc))
    deviation = ", mean and standard deviation" if "," in args.seeds else ""
    note = NOTE.format(names=len(names), mentions=mentions, seeds=args.seeds, deviation=deviation)
    out = args.out or _report.RESULTS / f"new-words-{args.corpus}.md"
    _report.write(out, f"Words after training: {args.corpus}", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--corpus", required=True, help="directory under --data and --runs")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{train,test}.spacy")
    parser.add_argument("--runs", type=Path, required=True, help="holds CORPUS/SYSTEM/SEED/model-best")
    parser.add_argument("--systems", default="tener+segment,flat,flat-atssa,mect")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--out", type=Path, help="default: research/results/new-words-CORPUS.md")
    return parser.parse_args()


def read(path: Path) -> list[Doc]:
    return list(DocBin().from_disk(path).get_docs(spacy.blank("zh").vocab))


def entities(doc: Doc) -> list[Entity]:
    return [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]


def new_names(docs: Iterable[Doc], training_text: str) -> dict[str, str]:
    """Return the new names with the tags of their most frequent labels."""
    dictionary = read_jieba()
    found: dict[str, Counter[str]] = {}
    for doc in docs:
        for start, end, label in entities(doc):
            name = doc.text[start:end]
            if label in TAGS and len(name) > 1 and name not in dictionary and name not in training_text:
                found.setdefault(name, Counter())[TAGS[label]] += 1
    return {name: tags.most_common(1)[0][0] for name, tags in found.items()}


def wrong_words(docs: Sequence[Doc], names: Names) -> dict[str, str]:
    """Sample wrong words, so that they are a fifth of a list that also contains the names."""
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


def system_rows(
    args: argparse.Namespace, system: str, lists: Mapping[str, Names], docs: Sequence[Doc], names: Names
) -> list[list[str]]:
    """Return the rows of a system: one row for each list of words, or a single row if the model has no lexicon."""
    scored: dict[str, list[tuple[Counts, Counts]]] = {name: [] for name in lists}
    for seed in args.seeds.split(","):
        nlp = spacy.load(args.runs / args.corpus / system / seed / "model-best")
        component: Any = nlp.get_pipe("tener_ner")
        reads_words = any(hasattr(node.attrs.get("vocabulary"), "lists") for node in component.model.walk())
        for name, words in lists.items():
            if reads_words:
                component.lexicon.clear()
                component.lexicon.add(words)
            if reads_words or not words:
                scored[name].append(score(nlp, docs, names))
    return [[system, name, *cells(runs)] for name, runs in scored.items() if runs]


def score(nlp: Language, docs: Sequence[Doc], names: Names) -> tuple[Counts, Counts]:
    """Return the counts for new names, and for all other entities."""
    new, other_counts = [], []
    for gold, predicted in zip(docs, nlp.pipe(doc.text for doc in docs), strict=True):
        wanted, found = set(entities(gold)), set(entities(predicted))
        listed = {entity for entity in wanted if gold.text[entity[0] : entity[1]] in names}
        touching = {span for span in found if any(span[0] < end and start < span[1] for start, end, _ in listed)}
        new.append((len(listed & found), len(touching), len(listed)))
        other_counts.append((len((wanted - listed) & found), len(found - touching), len(wanted - listed)))
    return Counts(*map(sum, zip(*new, strict=True))), Counts(*map(sum, zip(*other_counts, strict=True)))


def cells(runs: Sequence[tuple[Counts, Counts]]) -> list[str]:
    rows = [(new.recall, new.precision, old.precision, old.recall, old.f1) for new, old in runs]
    return [percent(column) for column in zip(*rows, strict=True)]


def percent(values: Sequence[float]) -> str:
    return _report.mean_sd([100 * value for value in values])


if __name__ == "__main__":
    main()
