r"""Compare the speed of the same trained pipelines in two checkouts of this package, such as before and after a change.

    python research/benchmarks/checkouts.py before=../before after=. ner=RUNS/resume/ner/1/model-best \
        tener=RUNS/resume/tener/1/model-best --texts DATA/resume/test.spacy --out page.md

Each checkout has a process with its own environment, `.venv`. The processes alternate every few seconds with each
pipeline, so that other work on the machine affects both equally.

A checkout without a `.venv`, such as a git worktree, uses the Python interpreter of this script. Run `python setup.py
-q egg_info` in that checkout first, so that spaCy finds its registered functions.

To compare the speed on long texts, use `--join 20`: each text then has 20 texts of the file, one per line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import _report
import spacy
from spacy.tokens import DocBin

NOTE = (
    "CPU time of `nlp.pipe` over {texts} texts with {chars} characters of the test set, from raw text, on one thread. "
    "The two checkouts take turns with each pipeline in {rounds} rounds. A ratio is the median over rounds of the "
    "time in the second checkout by that in the first, with its quartiles; below 1, the second is faster. The last "
    "columns compare `doc.ents`: how many entities the first checkout finds, and how many only one of the two finds."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs=2, metavar="NAME=CHECKOUT")
    parser.add_argument("pipelines", nargs="+", metavar="NAME=DIRECTORY")
    parser.add_argument("--texts", type=Path, required=True, help="a .spacy file")
    parser.add_argument("--limit", type=int, default=150, help="how many of its texts, from its start")
    parser.add_argument("--join", type=int, default=1, help="how many of these are joined to one text")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    checkouts, pipelines = _report.named_paths(args.checkouts), _report.named_paths(args.pipelines)
    texts = read_texts(args.texts, args.limit, args.join)
    workers = {name: Worker(folder, pipelines, texts) for name, folder in checkouts.items()}
    first, second = workers.values()
    rows = []
    for name in pipelines:
        # the first round is a warm-up
        rounds = [(first.ask(name), second.ask(name)) for _ in range(args.rounds + 1)][1:]
        ratios = [after.seconds / before.seconds for before, after in rounds]
        speeds = [
            sum(map(len, texts)) / statistics.median(side.seconds for side in sides)
            for sides in zip(*rounds, strict=True)
        ]
        low, middle, high = statistics.quantiles(ratios, n=4)
        before, after = rounds[-1]
        counts = [str(len(before.entities)), str(len(before.entities ^ after.entities))]
        rows.append([name, *(f"{speed:,.0f}" for speed in speeds), f"{middle:.2f} ({low:.2f} to {high:.2f})", *counts])
    header = ["pipeline", *(f"{name}, chars/s" for name in checkouts), "ratio of times", "entities", "differing"]
    note = NOTE.format(texts=len(texts), chars=f"{sum(map(len, texts)):,}", rounds=args.rounds)
    _report.write(args.out, "Speed in two checkouts", note, _report.table(header, rows))


def read_texts(path: Path, limit: int, n_joined: int) -> list[str]:
    """Return the texts of the first Docs in a file. Each `n_joined` texts are joined with line breaks."""
    docs = list(DocBin().from_disk(path).get_docs(spacy.blank("xx").vocab))
    texts = [doc.text for doc in docs[:limit]]
    return ["\n".join(texts[start : start + n_joined]) for start in range(0, len(texts), n_joined)]


@dataclass(frozen=True)
class Turn:
    """The result of one turn.

    seconds: CPU time of `nlp.pipe`.
    entities: The predicted entities.
    """

    seconds: float
    entities: frozenset[_report.Entity]


class Worker:
    """A process that runs the code of a checkout, with all pipelines loaded."""

    def __init__(self, checkout: Path, pipelines: dict[str, Path], texts: Sequence[str]) -> None:
        paths = {name: str(path.resolve()) for name, path in pipelines.items()}
        self.process = subprocess.Popen(
            [find_python(checkout), "-c", WORK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env={**_report.one_thread(), "PYTHONPATH": str(checkout.resolve())},
        )
        self._send({"checkout": str(checkout.resolve()), "pipelines": paths, "texts": texts})
        self._receive()

    def ask(self, name: str) -> Turn:
        """Run a pipeline on the texts."""
        self._send(name)
        answer = self._receive()
        return Turn(answer["seconds"], frozenset(tuple(entity) for entity in answer["entities"]))

    def _send(self, message: object) -> None:
        assert self.process.stdin is not None
        print(json.dumps(message), file=self.process.stdin, flush=True)

    def _receive(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("A checkout's process ended: its message is above.")
        return json.loads(line)


def find_python(checkout: Path) -> str:
    """Return the interpreter of the checkout's environment, or the interpreter of this script if there is none."""
    own = checkout.resolve() / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


WORK = """
import json, sys, time
import spacy
import spacy_tener
task = json.loads(input())
if not spacy_tener.__file__.startswith(task["checkout"]):
    sys.exit(f"Expected the spacy_tener of {task['checkout']}, but Python imports {spacy_tener.__file__}")
pipelines = {name: spacy.load(path) for name, path in task["pipelines"].items()}
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    nlp = pipelines[json.loads(line)]
    start = time.process_time()
    docs = list(nlp.pipe(task["texts"]))
    seconds = time.process_time() - start
    entities = [(i, ent.start_char, ent.end_char, ent.label_) for i, doc in enumerate(docs) for ent in doc.ents]
    print(json.dumps({"seconds": seconds, "entities": entities}), flush=True)
"""


if __name__ == "__main__":
    main()
