"""What is annotated wrongly: errors planted in a corpus, and how early `tener review` ranks them.

    python benchmarks/review.py --data corpus --work training/review

Five in a hundred of the entities of Resume's training part are made wrong, a third each: another label, drawn from
those of the corpus; an edge moved by one token; not annotated at all. Then the corpus is cross-trained, by TENER of
width 128 with one layer. A place counts as an error found where it shares characters with one that was planted.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import _report
import spacy
from spacy.tokens import Doc, DocBin, Span
from suggest import SMALL

from spacy_tener.workbench.composing.compose import compose
from spacy_tener.workbench.composing.named import find_base
from spacy_tener.workbench.report.runs import METRICS_DEV, MODEL
from spacy_tener.workbench.runs.processes import Processes
from spacy_tener.workbench.runs.training import train
from spacy_tener.workbench.suggestions.crossing import Crossing, cross_train
from spacy_tener.workbench.suggestions.doubts import Doubt, judge, ranked

HERE = Path(__file__).parent
SHARE, FOLDS = 0.05, 5
KINDS = ("label", "edges", "missing")
STEPS = ["training.max_steps=500", "training.eval_frequency=250"]
Planted = tuple[int, int, int, str]
"""The Doc's number, start and end in characters of what was or is annotated, and the kind of error."""


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    blank = spacy.blank("zh")
    docs = list(DocBin().from_disk(args.data / args.corpus / "train.spacy").get_docs(blank.vocab))
    planted = plant(docs, args.seed)
    settings = [f"paths.dev={args.data / args.corpus / 'dev.spacy'}", *STEPS, *SMALL]
    crossing = Crossing(compose(find_base(args.corpus), settings=settings).config, docs, args.work, FOLDS)
    crossed = list(
        cross_train(crossing, args.jobs, begun=lambda fold, trained: print("fold", fold + 1, trained, flush=True))
    )
    alone = list(judge(trained_on_all(crossing), enumerate(docs)))
    sizes = [len(planted) // 4, len(planted) // 2, len(planted), 2 * len(planted)]
    header = ["first", "precision", "recall", *(f"recall of {kind}" for kind in KINDS)]
    parts = [
        part
        for title, judged in ((f"{FOLDS} models, cross-trained", crossed), ("One model, trained on all of it", alone))
        for part in (f"## {title}", _report.table(header, [row(planted, ranked(judged), size) for size in sizes]))
    ]
    entities = sum(len(doc.ents) for doc in docs)
    note = f"{__doc__.split(chr(10) * 2)[-1].strip()} Planted: {len(planted):,}; {entities:,} entities afterwards."
    _report.write(args.out, "What is annotated wrongly", note, *parts)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=Path("corpus"), help="holds CORPUS/{train,dev}.spacy")
    parser.add_argument("--work", type=Path, default=Path("training/review"), help="what is finished is kept here")
    parser.add_argument("--corpus", default="resume")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="how many are trained at once")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "review.md")
    return parser.parse_args()


def plant(docs: Sequence[Doc], seed: int) -> list[Planted]:
    """Make some entities wrong, in place."""
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
    edges = [(ent.start + left, ent.end + right) for left, right in ((1, 0), (-1, 0), (0, 1), (0, -1))]
    possible = [(start, end) for start, end in edges if free_from <= start < end <= free_to]
    return [Span(doc, *random_.choice(possible), ent.label_)] if possible else []


def trained_on_all(crossing: Crossing) -> spacy.language.Language:
    folder = crossing.output / "all"
    if not (folder / METRICS_DEV).is_file():
        folder.mkdir(parents=True, exist_ok=True)
        DocBin(docs=crossing.docs).to_disk(folder / "train.spacy")
        config = crossing.config.copy()
        config["paths"]["train"] = str(folder / "train.spacy")
        result = train(Processes(), config, folder, echo=sys.stdout.write)
        if result.failure:
            raise SystemExit(result.failure)
    return spacy.load(folder / MODEL)


def row(planted: Sequence[Planted], doubts: Sequence[Doubt], size: int) -> list[str]:
    first = doubts[:size]
    hits = [any(_meets(doubt, each) for each in planted) for doubt in first]
    found = [each for each in planted if any(_meets(doubt, each) for doubt in first)]
    recalls = [_share(sum(k == kind for *_, k in found), sum(k == kind for *_, k in planted)) for kind in KINDS]
    return [f"{size:,}", _share(sum(hits), len(first)), _share(len(found), len(planted)), *recalls]


def _meets(doubt: Doubt, planted: Planted) -> bool:
    number, start, end, _ = planted
    return doubt.doc == number and doubt.start < end and start < doubt.end


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""


if __name__ == "__main__":
    main()
