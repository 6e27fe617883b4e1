"""Measure how well `tener review` detects annotation errors: errors are planted in a corpus, and their ranks are
compared.

    python research/benchmarks/review.py --data corpus --work training/review

5 % of the entities in the training set of Resume are changed, a third of them in each way: to another label of the
corpus, by moving a boundary by one token, or by removing the entity. Then models are trained by cross-validation with
TENER (width 128, one layer). A suspected error counts as correct if it overlaps a planted error.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean

import _report
import spacy
from spacy.tokens import Doc, DocBin, Span
from suggest import SMALL

from spacy_tener.review.cross_validation import CrossValidation, cross_train, fold_run
from spacy_tener.review.suspected_errors import SuspectedError, find_suspected_errors, rank_suspected_errors
from spacy_tener.training.config_files import find_base
from spacy_tener.training.overlays import compose
from spacy_tener.training.runs import MODEL, Processes, is_trained, train

SHARE, FOLDS, PLANTINGS = 0.05, 5, 10
KINDS = ("label", "edges", "missing")
STEPS = ["training.max_steps=500", "training.eval_frequency=250"]
# Index of the Doc, start and end in characters of the original and changed entity, and the type of error.
Planted = tuple[int, int, int, str]


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    if args.model:
        by_model(args)
        return
    docs = read(args.data / args.corpus / "train.spacy")
    planted = plant(docs, args.seed)
    settings = [f"paths.dev={args.data / args.corpus / 'dev.spacy'}", *STEPS, *SMALL]
    validation = CrossValidation(compose(find_base(args.corpus), settings=settings), docs, args.work, FOLDS)
    begun = partial(print, "fold, trained already:", flush=True)
    reviews = {f"{FOLDS} models, cross-trained": list(cross_train(validation, args.jobs, begun=begun))}
    if args.alone:
        reviews["One model, trained on all of it"] = list(
            find_suspected_errors(trained_on_all(validation), enumerate(docs))
        )
    sizes = sizes_of(planted)
    parts = [
        part
        for title, reviewed in reviews.items()
        for part in (
            f"## {title}",
            table(sizes, [[row(planted, rank_suspected_errors(reviewed), size) for size in sizes]]),
        )
    ]
    entities = sum(len(doc.ents) for doc in docs)
    note = f"{__doc__.split(chr(10) * 2)[-1].strip()} Planted: {len(planted):,}; {entities:,} entities afterwards."
    _report.write(args.out, "What is annotated wrongly", note, *parts)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("corpus"), help="holds CORPUS/{train,dev}.spacy")
    parser.add_argument("--work", type=Path, default=Path("training/review"), help="what is finished is kept here")
    parser.add_argument("--corpus", default="resume")
    parser.add_argument("--model", type=Path, help="plant in the test part, often, and let this pipeline review it")
    parser.add_argument(
        "--alone", action="store_true", help="beside a model that predicts the texts that it was trained on"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="how many are trained at once")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "review.md")
    return parser.parse_args()


def by_model(args: argparse.Namespace) -> None:
    """Detect errors in the test set with a pipeline trained on the training set, averaged over random plantings."""
    nlp, found = spacy.load(args.model), []
    for seed in range(PLANTINGS):
        docs = read(args.data / args.corpus / "test.spacy")
        planted = plant(docs, seed)
        suspects = rank_suspected_errors(find_suspected_errors(nlp, enumerate(docs)))
        found.append([row(planted, suspects, size) for size in sizes_of(planted)])
    note = (
        f"Five in a hundred of the entities of the test part of {args.corpus} are made wrong, {len(planted)} of them, "
        "a third each: another label; an edge moved by one token; not annotated at all. They are judged by a pipeline "
        f"that was trained on the training part. Means of {PLANTINGS} plantings. Errors that the corpus had "
        "before count as false alarms here."
    )
    _report.write(args.out, f"Planted errors in {args.corpus}", note, table(sizes_of(planted), found))


def read(path: Path) -> list[Doc]:
    return list(DocBin().from_disk(path).get_docs(spacy.blank("zh").vocab))


def sizes_of(planted: Sequence[Planted]) -> list[int]:
    return [len(planted) // 2, len(planted), 2 * len(planted), 4 * len(planted)]


def table(sizes: Sequence[int], found: Sequence[Sequence[Sequence[float]]]) -> str:
    """Return a table of means.

    found: Values by planting and size.
    """
    header = ["first", "precision", "recall", *(f"recall of {kind}" for kind in KINDS)]
    rows = [[f"{100 * mean(values):.1f} %" for values in zip(*rows, strict=True)] for rows in zip(*found, strict=True)]
    return _report.table(header, [[f"{size:,}", *cells] for size, cells in zip(sizes, rows, strict=True)])


def plant(docs: Sequence[Doc], seed: int) -> list[Planted]:
    """Change some entities in place, and return the planted errors."""
    random_ = random.Random(seed)
    places = [(number, index) for number, doc in enumerate(docs) for index in range(len(doc.ents))]
    labels = sorted({ent.label_ for doc in docs for ent in doc.ents})
    chosen: dict[int, dict[int, str]] = {}
    for turn, (number, index) in enumerate(random_.sample(places, round(SHARE * len(places)))):
        chosen.setdefault(number, {})[index] = KINDS[turn % len(KINDS)]
    planted: list[Planted] = []
    for number, kinds in sorted(chosen.items()):
        doc, entities = docs[number], []
        for index, ent in enumerate(doc.ents):
            kind = kinds.get(index, "")
            wrong = _wrong(doc, index, kind, labels, random_) if kind else [ent]
            entities += wrong
            if kind:
                spans = [ent, *wrong]
                start, end = min(span.start_char for span in spans), max(span.end_char for span in spans)
                planted.append((number, start, end, kind))
        doc.set_ents(entities, default="outside")
    return planted


def _wrong(doc: Doc, index: int, kind: str, labels: Sequence[str], random_: random.Random) -> list[Span]:
    ent = doc.ents[index]
    if kind == "missing":
        return []
    if kind == "label":
        return [Span(doc, ent.start, ent.end, random_.choice([label for label in labels if label != ent.label_]))]
    free_from = doc.ents[index - 1].end + 1 if index else 0
    free_to = doc.ents[index + 1].start - 1 if index + 1 < len(doc.ents) else len(doc)
    shifts = ((1, 0), (-1, 0), (0, 1), (0, -1))
    edges = [(ent.start + at_start, ent.end + at_end) for at_start, at_end in shifts]
    possible = [(start, end) for start, end in edges if free_from <= start < end <= free_to]
    return [Span(doc, *random_.choice(possible), ent.label_)] if possible else []


def trained_on_all(validation: CrossValidation) -> spacy.language.Language:
    run = fold_run(replace(validation, output=validation.output / "all"), 0, validation.docs)
    if not is_trained(run) and (failure := train(run, Processes()).failure):
        raise SystemExit(failure)
    return spacy.load(run.folder / MODEL)


def row(planted: Sequence[Planted], suspects: Sequence[SuspectedError], size: int) -> list[float]:
    """Return precision, recall, and recall by error type of the highest-ranked suspected errors."""
    first = suspects[:size]
    hits = [any(_meets(suspect, error) for error in planted) for suspect in first]
    found = [error for error in planted if any(_meets(suspect, error) for suspect in first)]
    recalls = [_share(sum(k == kind for *_, k in found), sum(k == kind for *_, k in planted)) for kind in KINDS]
    return [_share(sum(hits), len(first)), _share(len(found), len(planted)), *recalls]


def _meets(suspect: SuspectedError, planted: Planted) -> bool:
    number, start, end, _ = planted
    return suspect.doc == number and suspect.start < end and start < suspect.end


def _share(part: int, total: int) -> float:
    return part / max(1, total)


if __name__ == "__main__":
    main()
