"""Speed of the same trained pipelines in two checkouts of this package, such as those before and after a change.

    python research/benchmarks/checkouts.py before=../before after=. ner=RUNS/resume/ner/1/model-best \\
        tener=RUNS/resume/tener/1/model-best --texts DATA/resume/test.spacy --out page.md

Each checkout has a process with its own environment, `.venv`. They take turns with each pipeline, a few seconds at a
time, so that what else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

import _report

NOTE = (
    "CPU time of `nlp.pipe` over {texts} texts with {chars} characters of the test part, from raw text, on one thread. "
    "The two checkouts take turns with each pipeline in {rounds} rounds. A ratio is the median over rounds of the "
    "time in the second checkout by that in the first, with its quartiles; below 1, the second is faster."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs=2, metavar="NAME=CHECKOUT")
    parser.add_argument("pipelines", nargs="+", metavar="NAME=DIRECTORY")
    parser.add_argument("--texts", type=Path, required=True, help="a .spacy file")
    parser.add_argument("--limit", type=int, default=150, help="how many of its texts, from its start")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    checkouts, pipelines = _report.named_paths(args.checkouts), _report.named_paths(args.pipelines)
    workers = {name: Worker(folder, pipelines, args.texts, args.limit) for name, folder in checkouts.items()}
    first, second = workers.values()
    rows = []
    for name in pipelines:
        rounds = [(first.ask(name), second.ask(name)) for _ in range(args.rounds + 1)][1:]  # one to warm up
        ratios = [after["seconds"] / before["seconds"] for before, after in rounds]
        speeds = [
            first.chars / statistics.median(side["seconds"] for side in sides) for sides in zip(*rounds, strict=True)
        ]
        low, middle, high = statistics.quantiles(ratios, n=4)
        same = "yes" if len({answer["entities"] for answers in rounds for answer in answers}) == 1 else "no"
        rows.append([name, *(f"{speed:,.0f}" for speed in speeds), f"{middle:.2f} ({low:.2f} to {high:.2f})", same])
    header = ["pipeline", *(f"{name}, chars/s" for name in checkouts), "ratio of times", "same entities"]
    note = NOTE.format(texts=first.texts, chars=f"{first.chars:,}", rounds=args.rounds)
    _report.write(args.out, "Speed in two checkouts", note, _report.table(header, rows))


class Worker:
    """A process of a checkout, which has loaded the pipelines.

    texts, chars (int): How many texts it reads each time, and their characters.
    """

    def __init__(self, checkout: Path, pipelines: dict[str, Path], texts: Path, limit: int) -> None:
        paths = {name: str(path.resolve()) for name, path in pipelines.items()}
        task = json.dumps({"pipelines": paths, "texts": str(texts.resolve()), "limit": limit})
        self.process = subprocess.Popen(
            [checkout.resolve() / ".venv" / "bin" / "python", "-c", WORK, task],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=checkout,
            env=_report.one_thread(),
        )
        ready = self._read()
        self.texts, self.chars = ready["texts"], ready["chars"]

    def ask(self, name: str) -> dict[str, float]:
        """Return the seconds of a pipeline, and a number that tells its entities."""
        assert self.process.stdin is not None
        print(name, file=self.process.stdin, flush=True)
        return self._read()

    def _read(self) -> dict[str, int]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            sys.exit("A checkout's process ended: its message is above.")
        answer: dict[str, int] = json.loads(line)
        return answer


WORK = """
import json, sys, time, zlib
import spacy
from spacy.tokens import DocBin
task = json.loads(sys.argv[1])
docs = DocBin().from_disk(task["texts"]).get_docs(spacy.blank("xx").vocab)
texts = [doc.text for doc, _ in zip(docs, range(task["limit"]))]
pipelines = {name: spacy.load(path) for name, path in task["pipelines"].items()}
print(json.dumps({"texts": len(texts), "chars": sum(map(len, texts))}), flush=True)
for line in sys.stdin:
    start = time.process_time()
    docs = list(pipelines[line.strip()].pipe(texts))
    seconds = time.process_time() - start
    found = [[(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents] for doc in docs]
    print(json.dumps({"seconds": seconds, "entities": zlib.crc32(json.dumps(found).encode())}), flush=True)
"""


if __name__ == "__main__":
    main()
