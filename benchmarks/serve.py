"""The service beside `nlp.pipe`: latency, throughput and memory, with 1 to 64 clients and a corpus' test part.

Each client sends one text at a time and waits for its answer, over a connection of its own. The service runs on one
core and one thread, and the clients on another core; `nlp.pipe` and `nlp(text)` have the service's core. In each round
all take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import _report
import spacy
from memory import resident_kb
from speed import call_each, pipe_all, read_texts

HERE = Path(__file__).parent
CLIENTS = (1, 4, 16, 64)
HEADER = ("", "texts/s", "chars/s", "of nlp.pipe", "p50 ms", "p99 ms")
NOTE = (
    "The {n_texts} texts of the test part, {times} times: {sent} requests, {chars} characters. Medians over "
    "{rounds} rounds, in which the rows take turns. The service and spaCy's calls have core {cpu} and one thread, the "
    "clients core {client_cpu}. A client has one connection and one request on its way; what it sees of time includes "
    "its own. The service gives each entity its probability. Its process takes {started} MB when it listens, {loaded} "
    "MB after the last round, and at most {peak} MB."
)


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    texts = read_texts(args.data)
    sent = texts * args.times
    with service(args.model) as (port, process):
        memory = {"started": resident_mb("VmRSS", process)}
        rows = measure(args, sent, port)
        memory |= {"loaded": resident_mb("VmRSS", process), "peak": resident_mb("VmHWM", process)}
    chars = sum(map(len, sent))
    model = "/".join(args.model.resolve().parts[-4:-2])
    facts = {**vars(args), **memory, "n_texts": len(texts), "sent": len(sent), "chars": f"{chars:,}"}
    _report.write(args.out, f"The service beside nlp.pipe: {model}", NOTE.format(**facts), _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="directory of a trained pipeline")
    parser.add_argument("--data", type=Path, required=True, help=".spacy file with the texts")
    parser.add_argument("--times", type=int, default=8, help="how often each text is sent in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=0, help="core of the service and of nlp.pipe")
    parser.add_argument("--client-cpu", type=int, default=1, help="core of the clients")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "serve.md")
    return parser.parse_args()


@contextmanager
def service(model: Path) -> Iterator[tuple[int, int]]:
    """The service's port and process."""
    command = [sys.executable, "-um", "spacy", "tener", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = (re.search(r"http://.+:(\d+)", line) for line in process.stdout)
            yield next(int(found[1]) for found in lines if found), process.pid
        finally:
            process.terminate()


def measure(args: argparse.Namespace, texts: Sequence[str], port: int) -> list[list[str]]:
    nlp, scored = spacy.load(args.model), spacy.load(args.model)
    scored.get_pipe("tener_ner").cfg["spans_key"] = "scored"
    latencies: dict[str, list[list[float]]] = {}
    tasks: dict[str, Callable[[], object]] = {
        "`nlp.pipe`": partial(pipe_all, nlp, texts, 64),
        "`nlp.pipe` with probabilities": partial(pipe_all, scored, texts, 64),
        "`nlp(text)` with probabilities": partial(call_each, scored, texts),
    }
    kinds = {f"{n} client{'s' * (n > 1)}": (n, 1) for n in CLIENTS} | {"1 client, batches of 64 texts": (1, 64)}
    for name, kind in kinds.items():
        tasks[name] = partial(clients, args, port, kind, texts, latencies.setdefault(name, []))
    seconds = _report.median_seconds(tasks, args.rounds, clock=time.perf_counter)
    # Starting the clients' process is none of the service's time: they say themselves how long they took.
    seconds |= {name: statistics.median(took[-1] for took in of[1:]) for name, of in latencies.items()}
    chars, piped = sum(map(len, texts)), seconds["`nlp.pipe`"]
    return [
        [
            name,
            f"{len(texts) / took:,.0f}",
            f"{chars / took:,.0f}",
            f"{100 * piped / took:.0f} %",
            *(quantiles(latencies[name][1:]) if name in latencies else ["", ""]),
        ]
        for name, took in seconds.items()
    ]


def resident_mb(field: str, process: int) -> int:
    return round(resident_kb(field, process) / 1024)


def quantiles(rounds: Sequence[Sequence[float]]) -> list[str]:
    """The median and the 99th percentile, in milliseconds, each as the median of the rounds."""
    cut = [statistics.quantiles(each[:-1], n=100, method="inclusive") for each in rounds]
    return [f"{1000 * statistics.median(each[at] for each in cut):.1f}" for at in (49, 98)]


def clients(
    args: argparse.Namespace, port: int, kind: tuple[int, int], texts: Sequence[str], found: list[list[float]]
) -> None:
    result = subprocess.run(
        [sys.executable, HERE / "_clients.py", str(port), *map(str, kind)],
        input=json.dumps(texts),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        preexec_fn=partial(os.sched_setaffinity, 0, {args.client_cpu}),
    )
    found.append(json.loads(result.stdout))


if __name__ == "__main__":
    main()
