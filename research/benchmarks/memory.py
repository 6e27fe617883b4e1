"""Measure peak memory and time of pipelines by the length of a Doc, or by the length of sentences in a training batch.

Each measurement runs in a new process. With `--train-batch`, a training step is measured instead of prediction.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import _report
import spacy
from spacy.tokens import DocBin
from spacy.training import Example
from spacy.util import registry

HERE = Path(__file__).parent
NOTE = (
    "One Doc made of the corpus' sentences, joined without anything between them and cut at the length given. One "
    "thread; every measurement in a process of its own, the median of {repeats}. Memory: the highest resident size "
    "while the Doc is processed, over that of the loaded pipeline after a text of {warm_up} characters. Where growth "
    "is linear, characters per second and KB per character stay as they are."
)
NOTE_TRAINING = (
    "One training step, `nlp.update` with the pipeline's own optimizer, on {batch} sentences of the length given, cut "
    "from the corpus' text and read whole (no windows). One thread; every measurement in a process of its own, the "
    "median of {repeats}. Memory: the highest resident size during the step, over that after a step on {batch} "
    "sentences of {warm_up} characters."
)
HEADER = ("pipeline", "characters", "seconds", "chars/s", "peak memory over loaded, MB", "KB per character")
WARM_UP = 200
WARM_UP_TRAINING = 10


@dataclass(frozen=True)
class Cost:
    """The cost of processing one Doc: wall time, and peak memory above the memory of the loaded pipeline."""

    seconds: float
    megabytes: float


def main() -> None:
    args = parse_args()
    if args.child is not None:
        _report.pin(args.cpu)
        text = sys.stdin.read()
        cost = measure_here(args.child, text) if not args.train_batch else measure_step(args.child, text, args)
        print(json.dumps([cost.seconds, cost.megabytes]))
        return
    factor = args.train_batch or 1
    text = corpus_text(args.data / args.corpus, max(args.sizes) * factor)
    rows = [
        row(name, size * factor, [measure(path, text[: size * factor], args) for _ in range(args.repeats)])
        for name, path in _report.named_paths(args.pipelines).items()
        for size in args.sizes
    ]
    note, title = NOTE.format(repeats=args.repeats, warm_up=WARM_UP), "one long Doc"
    if args.train_batch:
        title = "one training step"
        note = NOTE_TRAINING.format(batch=args.train_batch, repeats=args.repeats, warm_up=WARM_UP_TRAINING)
    out = args.out or _report.RESULTS / f"memory-{args.corpus}.md"
    _report.write(out, f"Memory and time of {title}: {args.corpus}", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="*", help="NAME=DIRECTORY of a trained pipeline")
    parser.add_argument("--corpus", default="weibo", help="directory under --data, and part of the default file name")
    parser.add_argument("--data", type=Path, help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--sizes", type=numbers, default=[1_000, 10_000, 100_000], help="characters, with commas")
    parser.add_argument("--train-batch", type=int, default=0, help="train on so many sentences, of --sizes each")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, help="default: research/results/memory-CORPUS.md")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def corpus_text(folder: Path, size: int) -> str:
    """Return a text of `size` characters from the sentences of a corpus, which are repeated if necessary."""
    vocab = spacy.blank("zh").vocab
    parts = [DocBin().from_disk(folder / f"{part}.spacy").get_docs(vocab) for part in ("test", "dev", "train")]
    text = "".join(doc.text for docs in parts for doc in docs)
    return (text * (size // len(text) + 1))[:size]


def measure(pipeline: Path, text: str, args: argparse.Namespace) -> Cost:
    command = [sys.executable, str(HERE / "memory.py"), "--child", str(pipeline), "--cpu", str(args.cpu)]
    command += ["--train-batch", str(args.train_batch)]
    child = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, encoding="utf8", env=_report.one_thread(), check=True
    )
    return Cost(*json.loads(child.stdout.splitlines()[-1]))


def measure_here(pipeline: Path, text: str) -> Cost:
    nlp = spacy.load(pipeline)
    nlp.max_length = max(nlp.max_length, len(text) + 1)
    nlp(text[:WARM_UP])
    return cost_of(lambda: nlp(text))


def measure_step(pipeline: Path, text: str, args: argparse.Namespace) -> Cost:
    size = len(text) // args.train_batch
    nlp = spacy.load(pipeline, config={"components": {"tener_ner": {"window": 10 * size}}})
    optimizer = registry.resolve({"optimizer": nlp.config.interpolate()["training"]["optimizer"]})["optimizer"]

    def step(length: int) -> None:
        docs = [nlp.make_doc(text[start : start + length]) for start in range(0, len(text), size)]
        nlp.update([Example.from_dict(doc, {"entities": []}) for doc in docs], sgd=optimizer)

    step(WARM_UP_TRAINING)
    return cost_of(lambda: step(size))


def cost_of(work: Callable[[], object]) -> Cost:
    # On Linux, this resets the peak memory (VmHWM) to the current size, so that the peak while loading is not included.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_kb("VmRSS")
    start = time.perf_counter()
    work()
    return Cost(seconds=time.perf_counter() - start, megabytes=(resident_kb("VmHWM") - before) / 1024)


def resident_kb(field: str, process: int | str = "self") -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def row(name: str, size: int, costs: Sequence[Cost]) -> list[str]:
    seconds = statistics.median(cost.seconds for cost in costs)
    megabytes = statistics.median(cost.megabytes for cost in costs)
    speed, per_character = f"{size / seconds:,.0f}", f"{1024 * megabytes / size:.2f}"
    return [name, f"{size:,}", f"{seconds:.3f}", speed, f"{megabytes:.1f}", per_character]


if __name__ == "__main__":
    main()
