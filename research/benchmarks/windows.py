"""Measure the effect of the window length on accuracy, on long Docs that are joined from sentences of the development
set."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import _report
import spacy
import torch
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example

WINDOWS = ((128, 32), (200, 40), (256, 64), (512, 64), (1024, 64))
NOTE = (
    "F1 on the dev part: its sentences one by one, as in training, and each {joined} of them joined to one Doc, by the "
    "length of windows and their overlap. Mean ± standard deviation over the pipelines of the seeds."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipelines", nargs="+", help="CORPUS=DIRECTORY of a trained pipeline")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/dev.spacy")
    parser.add_argument("--joined", type=int, default=30, help="sentences in a Doc")
    parser.add_argument("--cpu", type=int, default=-1)
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "windows.md")
    args = parser.parse_args()
    _report.single_thread(args.cpu)
    torch.set_num_threads(1)
    scores: dict[tuple[str, str], list[list[float]]] = {}
    for named in args.pipelines:
        corpus, _, path = named.partition("=")
        nlp = spacy.load(path)
        docs = list(DocBin().from_disk(args.data / corpus / "dev.spacy").get_docs(nlp.vocab))
        for kind, texts in (("sentences", docs), ("joined", list(join(docs, args.joined)))):
            scores.setdefault((corpus, kind), []).append([score(nlp, texts, *window) for window in WINDOWS])
    rows = [
        [corpus, kind, *(_report.mean_sd(values) for values in zip(*runs, strict=True))]
        for (corpus, kind), runs in scores.items()
    ]
    header = ["corpus", "Docs", *(f"{window} / {overlap}" for window, overlap in WINDOWS)]
    _report.write(args.out, "Windows", NOTE.format(joined=args.joined), _report.table(header, rows))


def join(docs: Sequence[Doc], size: int) -> Iterator[Doc]:
    """Yield Docs that are joined from `size` sentences each."""
    for start in range(0, len(docs), size):
        yield Doc.from_docs(docs[start : start + size], ensure_whitespace=False)


def score(nlp: Language, docs: Iterable[Doc], window: int, overlap: int) -> float:
    component = nlp.get_pipe("tener_ner")
    component.cfg.update(window=window, overlap=overlap)
    examples = [Example(bare(doc), doc) for doc in docs]
    return 100.0 * float(nlp.evaluate(examples)["ents_f"])


def bare(doc: Doc) -> Doc:
    """Return a copy of a Doc without its entities."""
    copy = doc.copy()
    copy.set_ents(list[Span](), default="missing")
    return copy


if __name__ == "__main__":
    main()
