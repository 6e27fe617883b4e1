"""Simulate active learning: F1 by the number of annotated sentences, with `tener suggest` and in random order.

    python research/benchmarks/suggest.py --data corpus --work training/suggest

The raw text consists of the distinct sentences in the training set of a corpus. The first sentences are sampled at
random. Then the sentences that the last pipeline suggests are added, or random sentences. Each pipeline is trained from
scratch for 1,000 steps. Finished training runs are skipped.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Sequence
from io import StringIO
from itertools import pairwise
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from spacy.training import Corpus
from spacy.training.initialize import init_nlp
from spacy.training.loop import train

from spacy_tener.annotate.answers import TEXT_COLUMN
from spacy_tener.corpora.folds import text_key
from spacy_tener.files import write_text
from spacy_tener.review.active_learning import suggest
from spacy_tener.training.config_files import find_base
from spacy_tener.training.overlays import compose

SIZES = {"resume": (100, 200, 400, 800), "weibo": (135, 270, 540, 1080)}
STEPS = 1000
RANDOM = "random"
SMALL = [
    "components.tener_ner.model.tok2vec.width=128",
    "components.tener_ner.model.tok2vec.layers=1",
    "components.tener_ner.model.tok2vec.ff_width=256",
]


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    if args.until:
        SIZES.update({corpus: tuple(size for size in sizes if size <= args.until) for corpus, sizes in SIZES.items()})
    corpora, orders = args.corpora.split(","), args.orders.split(",")
    seeds = [int(seed) for seed in args.seeds.split(",")]
    found: dict[tuple[str, str, int], list[float]] = {}
    for seed in seeds:
        for corpus in corpora:
            for order, size in ((order, size) for order in orders for size in SIZES[corpus]):
                score = Point(args, corpus, order, seed, size).score()
                found.setdefault((corpus, order, size), []).append(score)
                print(corpus, order, seed, size, f"{score:.2f}", flush=True)
    if args.split == "test":
        parts = [part for corpus in corpora for part in (f"## {corpus}", *page_of(corpus, orders, found))]
        _report.write(args.out, "What to annotate next", note(seeds), *parts)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("corpus"), help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--work", type=Path, default=Path("training/suggest"), help="what is finished is kept here")
    parser.add_argument("--corpora", default="resume,weibo")
    parser.add_argument("--orders", default=f"{RANDOM},entropy", help=f"{RANDOM}, entropy")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--until", type=int, default=0, help="most sentences; 0 for all points")
    parser.add_argument("--split", default="test", help="what to score on; only test writes the page")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "suggest.md")
    return parser.parse_args()


class Point:
    """A number of annotated sentences, selected in some order, and the pipeline that is trained on them."""

    def __init__(self, args: argparse.Namespace, corpus: str, order: str, seed: int, size: int) -> None:
        self.args, self.corpus, self.order, self.seed, self.size = args, corpus, order, seed, size
        first = size == SIZES[corpus][0]
        self.folder = args.work / corpus / ("start" if first else order) / str(seed) / str(size)
        self.before = None if first else Point(args, corpus, order, seed, SIZES[corpus][SIZES[corpus].index(size) - 1])

    def score(self) -> float:
        """Return F1 on the data set `--split`."""
        path = self.folder / f"{self.args.split}.json"
        if not path.is_file():
            nlp = self.trained()
            scores = nlp.evaluate(list(Corpus(self.data(self.args.split))(nlp)))
            write_text(path, json.dumps({"ents_f": scores["ents_f"]}) + "\n")
        return 100 * float(json.loads(path.read_text(encoding="utf8"))["ents_f"])

    def data(self, part: str) -> Path:
        return Path(self.args.data) / self.corpus / f"{part}.spacy"

    def trained(self) -> Language:
        model, finished = self.folder / "model-best", self.folder / "done"
        if not finished.is_file():  # an interrupted training run leaves an earlier model-best behind
            self.folder.mkdir(parents=True, exist_ok=True)
            DocBin(docs=self.chosen()).to_disk(self.folder / "train.spacy")
            settings = [
                *(SMALL if self.corpus == "resume" else ()),
                f"system.seed={self.seed}",
                f"paths.train={self.folder / 'train.spacy'}",
                f"paths.dev={self.data('dev')}",
                f"training.max_steps={STEPS}",
                f"training.eval_frequency={STEPS}",
                "corpora.dev.limit=20",  # not used for model selection, since the last weights are used
            ]
            nlp = init_nlp(compose(find_base(self.corpus), settings=settings))
            train(nlp, self.folder, stdout=StringIO(), stderr=StringIO())
            write_text(finished, "")
        return spacy.load(model)

    def chosen(self) -> list[Doc]:
        """Return the annotated sentences, without duplicate texts."""
        blank = spacy.blank("zh")
        docs = DocBin().from_disk(self.data("train")).get_docs(blank.vocab)
        pool = {text_key(doc.text): doc for doc in docs}
        order = sorted(pool)
        random.Random(self.seed).shuffle(order)
        if self.before is None or self.order == RANDOM:
            return [pool[name] for name in order[: self.size]]
        annotated = list(DocBin().from_disk(self.before.folder / "train.spacy").get_docs(blank.vocab))
        texts = [doc.text for doc in annotated]
        records = [{TEXT_COLUMN: pool[name].text} for name in order]
        suggestions = suggest(self.before.trained(), records, self.size - self.before.size, annotated=texts)
        return [*annotated, *(pool[text_key(suggestion.text)] for suggestion in suggestions)]


def note(seeds: Sequence[int]) -> str:
    return f"{__doc__.split(chr(10) * 2)[-1].strip()} TENER (width 128, one layer), means of seeds {seeds}; F1 on test."


def page_of(corpus: str, orders: Sequence[str], found: dict[tuple[str, str, int], list[float]]) -> list[str]:
    rows = [
        [f"{size:,}", *(_report.mean_sd(found[corpus, order, size], 2) for order in orders)] for size in SIZES[corpus]
    ]
    curves = {order: [statistics.mean(found[corpus, order, size]) for size in SIZES[corpus]] for order in orders}
    by_random = list(zip(SIZES[corpus], curves.get(RANDOM, []), strict=False))
    lines = [_report.table(["sentences", *orders], rows)]
    for order in (order for order in orders if order != RANDOM and RANDOM in orders):
        rows = [_needed(size, f1, sentences_for(f1, SIZES[corpus], curves[order])) for size, f1 in by_random[1:]]
        lines.append(_report.table([f"{RANDOM} order", "F1", f"{order}: sentences for that", "share"], rows))
    return lines


def _needed(size: int, score: float, need: float | None) -> list[str]:
    numbers = [f"{need:,.0f}", f"{100 * need / size:.0f} %"] if need else ["not reached", ""]
    return [f"{size:,}", f"{score:.2f}", *numbers]


def sentences_for(score: float, sizes: Sequence[int], curve: Sequence[float]) -> float | None:
    """Return the number of sentences at which a curve first reaches a score, by linear interpolation, or None."""
    for (smaller, low), (larger, high) in pairwise(zip(sizes, curve, strict=True)):
        if low < score <= high:
            return smaller + (larger - smaller) * (score - low) / (high - low)
    return None


if __name__ == "__main__":
    main()
