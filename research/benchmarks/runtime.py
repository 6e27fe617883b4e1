"""Compare the speed of prediction with NumPy and with torch, and with spaCy's `ner`, on raw texts.

The pipelines alternate in rounds. Also counts the texts on which NumPy and torch predict different entities.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import _report
import spacy
from spacy.language import Language
from spacy.tokens import DocBin

from spacy_tener.nn.shim import TorchShim

NOTE = (
    "One thread; all take turns within each round. Medians over {rounds} rounds. Texts: the test part, {texts} texts "
    "for `nlp.pipe` in batches of 64, the first {single} for `nlp(text)`; the tokenizer is included. Ratios are to the "
    "first row: above 1 is faster. Differing: texts on which numpy and torch find other entities."
)
HEADER = ("pipeline", "by", "nlp.pipe, chars/s", "ratio", "nlp(text), ms", "ratio", "differing")
SINGLE = 150


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    texts = [doc.text for doc in DocBin().from_disk(args.texts).get_docs(spacy.blank("zh").vocab)]
    first, *rest = _report.named_paths(args.pipelines).items()
    loaded = {(name, by): spacy.load(path) for name, path in rest for by in ("numpy", "torch")}
    loaded = {(first[0], "numpy"): spacy.load(first[1]), **loaded}
    piped = turns({key: partial(pipe, nlp, texts, key[1]) for key, nlp in loaded.items()}, args.rounds)
    called = turns({key: partial(call, nlp, texts[:SINGLE], key[1]) for key, nlp in loaded.items()}, args.rounds)
    start = next(iter(loaded))
    rows = []
    for key in loaded:
        speed, ms = sum(map(len, texts)) / piped[key], 1000 * called[key] / len(texts[:SINGLE])
        ratios = piped[start] / piped[key], called[start] / called[key]
        keys = [(key[0], by) for by in ("numpy", "torch") if (key[0], by) in loaded]
        found = [pipe(loaded[key], texts, key[1]) for key in keys]
        differing = sum(a != b for a, b in zip(found[0], found[-1], strict=True))
        by = "its own" if key == start else key[1]
        rows.append([key[0], by, f"{speed:,.0f}", f"{ratios[0]:.2f}", f"{ms:.2f}", f"{ratios[1]:.2f}", str(differing)])
    note = NOTE.format(rounds=args.rounds, texts=len(texts), single=SINGLE)
    _report.write(args.out, "Prediction by numpy and by torch", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline; the first is the measure")
    parser.add_argument("--texts", type=Path, required=True, help="the test part, .spacy")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "runtime.md")
    return parser.parse_args()


def turns(work: dict[tuple[str, str], Callable[[], object]], rounds: int) -> dict[tuple[str, str], float]:
    """Return the median seconds of each task, after a warm-up round."""
    seconds: dict[tuple[str, str], list[float]] = {key: [] for key in work}
    for i in range(rounds + 1):
        for key, run in work.items():
            begin = time.perf_counter()
            run()
            if i:
                seconds[key].append(time.perf_counter() - begin)
    return {key: statistics.median(durations) for key, durations in seconds.items()}


def pipe(nlp: Language, texts: list[str], by: str) -> list[list[tuple[int, int, str]]]:
    with by_torch() if by == "torch" else nullcontext():
        docs = list(nlp.pipe(texts, batch_size=64))
    return [[(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in docs]


def by_torch() -> AbstractContextManager[Any]:
    """Disable the NumPy implementation, so that all layers predict with their torch modules."""
    return patch.object(TorchShim, "predicts_with_numpy", lambda shim, ops: False)


def call(nlp: Language, texts: list[str], by: str) -> None:
    with by_torch() if by == "torch" else nullcontext():
        for text in texts:
            nlp(text)


if __name__ == "__main__":
    main()
