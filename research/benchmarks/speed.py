"""Compare the speed of trained pipelines in one process, on raw texts and a single thread.

Measures `nlp.pipe` (including the tokenizer), single calls `nlp(text)`, and `nlp.update` on the same batches for all
pipelines. The pipelines alternate in rounds, and medians are reported relative to the first pipeline.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import _report
import spacy
from spacy.language import Language
from spacy.tokens import DocBin
from spacy.training import Corpus
from spacy.util import registry

turns = partial(_report.take_turns, clock=time.perf_counter)
NOTE = (
    "One thread; the pipelines take turns within each round. Medians over {rounds} rounds, the range of the rounds in "
    "brackets. Texts: the test part, {texts} texts, {chars} characters. `nlp.pipe` and single calls start from raw "
    "text, the tokenizer is included. Training: `nlp.update` with each pipeline's own optimizer and dropout on the "
    "same batches of {train_batch} sentences. Ratios are to the first row: above 1 is faster."
)
HEADER = ("pipeline", "nlp.pipe, batch {batch}, chars/s", "ratio", "nlp(text), ms per text", "ratio")
SCORED = " with spans_key"
HEADER_TRAINING = ("training chars/s", "ratio")


@dataclass(frozen=True)
class Measure:
    """The measurements of one task.

    seconds: Seconds in each round, by pipeline.
    show: Function that converts seconds to the unit of the table.
    digits: Number of decimal places.
    """

    seconds: Mapping[str, Sequence[float]]
    show: Callable[[float], float]
    digits: int

    def cells(self, name: str, first: str) -> list[str]:
        """Return the median with its range over rounds, and the speed relative to the first pipeline."""
        shown = sorted(self.show(seconds) for seconds in self.seconds[name])
        low, middle, high = (f"{value:,.{self.digits}f}" for value in (shown[0], statistics.median(shown), shown[-1]))
        ratio = statistics.median(self.seconds[first]) / statistics.median(self.seconds[name])
        return [f"{middle} ({low} to {high})", f"{ratio:.2f}"]


def main() -> None:
    args = parse_args()
    pipelines = _report.named_paths(args.pipelines)
    if args.spans_key:
        pipelines |= {f"{name}{SCORED}": path for name, path in pipelines.items()}
    texts = read_texts(args.data / args.corpus / "test.spacy")[: args.texts]
    measures = measure(args, pipelines, texts)
    names = list(pipelines)
    rows = [[name, *(cell for measure in measures for cell in measure.cells(name, names[0]))] for name in names]
    header = [cell.format(batch=args.batch_size) for cell in (*HEADER, *HEADER_TRAINING)]
    chars = sum(map(len, texts))
    note = NOTE.format(rounds=args.rounds, texts=len(texts), chars=chars, train_batch=args.train_batch_size)
    _report.write(args.out, f"Speed: {args.corpus}", note, _report.table(header, rows))


def parse_args() -> argparse.Namespace:
    parser = _report.pipelines_parser(__doc__)
    parser.add_argument("--texts", type=int, help="how many of the test part, from its start; default: all")
    parser.add_argument("--train-batch-size", type=int, default=16)
    parser.add_argument("--train-sentences", type=int, default=320, help="sentences trained on in each round")
    parser.add_argument("--spans-key", action="store_true", help="each pipeline also with the setting spans_key")
    return _report.parse_pipelines(parser, "speed")


def read_texts(path: Path) -> list[str]:
    return [doc.text for doc in DocBin().from_disk(path).get_docs(spacy.blank("zh").vocab)]


def measure(args: argparse.Namespace, paths: Mapping[str, Path], texts: Sequence[str]) -> list[Measure]:
    loaded = {name: spacy.load(path) for name, path in paths.items()}
    for name in [name for name in loaded if name.endswith(SCORED)]:
        loaded[name].get_pipe("tener_ner").cfg["spans_key"] = "sc"
    trained = {name: Training(path, args) for name, path in paths.items()}
    train_chars = next(iter(trained.values())).chars
    called = {name: partial(call_each, nlp, texts) for name, nlp in loaded.items()}
    return [
        measure_pipe(loaded, texts, args.batch_size, args.rounds),
        Measure(
            turns(called, args.rounds),
            lambda seconds: 1000 * seconds / len(texts),
            2,
        ),
        Measure(turns(trained, args.rounds), lambda seconds: train_chars / seconds, 0),
    ]


def measure_pipe(pipelines: Mapping[str, Language], texts: Sequence[str], batch_size: int, n_rounds: int) -> Measure:
    """Measure `nlp.pipe` on raw texts, in characters per second."""
    chars = sum(map(len, texts))
    piped = {name: partial(pipe_all, nlp, texts, batch_size) for name, nlp in pipelines.items()}
    return Measure(turns(piped, n_rounds), lambda seconds: chars / seconds, 0)


def pipe_all(nlp: Language, texts: Sequence[str], batch_size: int) -> None:
    for _ in nlp.pipe(texts, batch_size=batch_size):
        pass


def call_each(nlp: Language, texts: Sequence[str]) -> None:
    for text in texts:
        nlp(text)


class Training:
    """A pipeline that continues training on the first sentences of the corpus when it is called."""

    def __init__(self, path: Path, args: argparse.Namespace) -> None:
        self.nlp = spacy.load(path)
        settings = self.nlp.config.interpolate()["training"]
        self.optimizer = registry.resolve({"optimizer": settings["optimizer"]})["optimizer"]
        self.dropout = settings["dropout"]
        train = Corpus(args.data / args.corpus / "train.spacy", limit=args.train_sentences)
        examples = list(train(self.nlp))
        size = args.train_batch_size
        self.batches = [examples[start : start + size] for start in range(0, len(examples), size)]
        self.chars = sum(len(example.reference.text) for example in examples)

    def __call__(self) -> None:
        for batch in self.batches:
            self.nlp.update(batch, drop=self.dropout, sgd=self.optimizer)
            self.optimizer.step_schedules()


if __name__ == "__main__":
    main()
