"""Measure the start-up time of pipelines: import, load and predict a first text in a new process, with and without
torch.

All pipelines alternate in rounds. To simulate an environment without torch, importing it raises an error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import _report

TEXT = "吴重阳在中国银行工作，王小明去了上海。"
NOTE = (
    "Fresh processes, one thread; the pipelines take turns within each round. Medians over {rounds} rounds. Seconds "
    "from the start of Python to the first text's entities; resident memory after it. Without torch: importing it "
    "fails, as where it is not installed."
)
HEADER = ("pipeline", "torch", "start, s", "ratio", "memory, MB", "ratio")
# Code that hides the entry points of spacy-transformers from spaCy, since they import torch.
WITHOUT_TRANSFORMERS = """
import importlib.metadata
import catalogue
catalogue.AVAILABLE_ENTRY_POINTS = importlib.metadata.EntryPoints(
    point
    for distribution in importlib.metadata.distributions()
    for point in distribution.entry_points
    if not point.value.startswith("spacy_transformers")
)
"""
CODE = f"""
import sys, time
begin = time.perf_counter()
if sys.argv[2] == "without":
    sys.modules["torch"] = None
import json, resource
{WITHOUT_TRANSFORMERS}
import spacy
nlp = spacy.load(sys.argv[1])
nlp(sys.argv[3])
seconds = time.perf_counter() - begin
with open("/proc/self/statm") as file:
    memory = int(file.read().split()[1]) * resource.getpagesize() / 2**20
print(json.dumps([seconds, memory]))
"""


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    pipelines = _report.named_paths(args.pipelines)
    kinds = [(name, torch) for name in pipelines for torch in ("without", "installed")]
    measured: dict[tuple[str, str], list[tuple[float, float]]] = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for name, torch in kinds:
            measured[name, torch].append(start(pipelines[name], torch))
    first = medians(measured[kinds[0]])
    rows = []
    for name, torch in kinds:
        seconds, memory = medians(measured[name, torch])
        cells = f"{seconds:.2f}", f"{seconds / first[0]:.2f}", f"{memory:.0f}", f"{memory / first[1]:.2f}"
        rows.append([name, torch, *cells])
    _report.write(args.out, "Starting", NOTE.format(rounds=args.rounds), _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline; the first is the measure")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "start.md")
    return parser.parse_args()


def start(path: Path, torch: str) -> tuple[float, float]:
    """Return the seconds and megabytes of a new process."""
    command = [sys.executable, "-c", CODE, str(path), torch, TEXT]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory = json.loads(result.stdout)
    return seconds, memory


def medians(rounds: list[tuple[float, float]]) -> tuple[float, float]:
    seconds, memory = zip(*rounds, strict=True)
    return statistics.median(seconds), statistics.median(memory)


if __name__ == "__main__":
    main()
