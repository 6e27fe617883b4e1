"""Peak memory and time of one Doc of growing length, for each pipeline: every measurement in a fresh process."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import _report
import spacy
from spacy.tokens import DocBin

HERE = Path(__file__).parent
NOTE = (
    "One Doc made of the corpus' sentences, joined without anything between them and cut at the length given. One "
    "thread; every measurement in a process of its own, the median of {repeats}. Memory: the highest resident size "
    "while the Doc is processed, over that of the loaded pipeline after a text of {warm_up} characters. Where growth "
    "is linear, characters per second and KB per character stay as they are."
)
HEADER = ("pipeline", "characters", "seconds", "chars/s", "peak memory over loaded, MB", "KB per character")
WARM_UP = 200


@dataclass(frozen=True)
class Cost:
    """What one Doc took."""

    seconds: float
    megabytes: float


def main() -> None:
    args = parse_args()
    if args.child is not None:
        _report.pin(args.cpu)
        cost = measure_here(args.child, sys.stdin.read())
        print(json.dumps([cost.seconds, cost.megabytes]))
        return
    text = corpus_text(args.data / args.corpus, max(args.sizes))
    rows = [
        row(name, size, [measure(path, text[:size], args.cpu) for _ in range(args.repeats)])
        for name, path in _report.named_paths(args.pipelines).items()
        for size in args.sizes
    ]
    note = NOTE.format(repeats=args.repeats, warm_up=WARM_UP)
    out = args.out or HERE / "results" / f"memory-{args.corpus}.md"
    _report.write(out, f"Memory and time of one long Doc: {args.corpus}", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="*", help="NAME=DIRECTORY of a trained pipeline")
    parser.add_argument("--corpus", default="weibo", help="directory under --data, and part of the default file name")
    parser.add_argument("--data", type=Path, help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--sizes", type=numbers, default=[1_000, 10_000, 100_000], help="characters, with commas")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/memory-CORPUS.md")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def corpus_text(folder: Path, size: int) -> str:
    """Sentences of all parts, from the start again where they do not suffice."""
    vocab = spacy.blank("zh").vocab
    parts = [DocBin().from_disk(folder / f"{part}.spacy").get_docs(vocab) for part in ("test", "dev", "train")]
    text = "".join(doc.text for docs in parts for doc in docs)
    return (text * (size // len(text) + 1))[:size]


def measure(pipeline: Path, text: str, cpu: int) -> Cost:
    command = [sys.executable, str(HERE / "memory.py"), "--child", str(pipeline), "--cpu", str(cpu)]
    child = subprocess.run(
        command, input=text, stdout=subprocess.PIPE, encoding="utf8", env=_report.one_thread(), check=True
    )
    return Cost(*json.loads(child.stdout.splitlines()[-1]))


def measure_here(pipeline: Path, text: str) -> Cost:
    nlp = spacy.load(pipeline)
    nlp.max_length = max(nlp.max_length, len(text) + 1)
    nlp(text[:WARM_UP])
    # Linux: makes the present size the highest so far, so that the peak of loading does not hide that of the Doc.
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = resident_kb("VmRSS")
    start = time.perf_counter()
    nlp(text)
    return Cost(seconds=time.perf_counter() - start, megabytes=(resident_kb("VmHWM") - before) / 1024)


def resident_kb(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


def row(name: str, size: int, costs: Sequence[Cost]) -> list[str]:
    seconds = statistics.median(cost.seconds for cost in costs)
    megabytes = statistics.median(cost.megabytes for cost in costs)
    speed, per_character = f"{size / seconds:,.0f}", f"{1024 * megabytes / size:.2f}"
    return [name, f"{size:,}", f"{seconds:.3f}", speed, f"{megabytes:.1f}", per_character]


if __name__ == "__main__":
    main()
