"""Compare the HTTP service with `nlp.pipe`: latency, throughput and memory, with 1 to 64 clients.

Each pipeline has its own service. Each client has one connection, and sends a text when it has received the previous
response. The services run on one core and one thread, and the clients on another core; `nlp.pipe` and `nlp(text)` run
on the core of the services. All of them alternate in rounds.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import _report
import spacy
from memory import resident_kb
from speed import call_each, pipe_all, read_texts

from spacy_tener.files import size_mb

HERE = Path(__file__).parent
PIPED = "`nlp.pipe`"
# Number of clients, and number of texts in a request.
KINDS = {f"{n} client{'s' * (n > 1)}": (n, 1) for n in (1, 4, 16, 64)} | {"1 client, batches of 64 texts": (1, 64)}
HEADER = ("pipeline", "asked by", "texts/s", "chars/s", "of nlp.pipe", "p50 ms", "p99 ms")
MEMORY_HEADER = ("pipeline", "MB on disk", "MB when it listens", "MB after the last round", "MB at most")
NOTE = (
    "The {n_texts} texts of the test part, {times} times: {sent} requests, {chars} characters. Medians over "
    "{rounds} rounds, in which the rows take turns. The services and spaCy's calls have core {cpu} and one thread, the "
    "clients core {client_cpu}. A client has one connection and one request on its way; what it sees of time includes "
    "its own. The service gives each entity its probability."
)


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    pipelines = _report.named_paths(args.pipelines)
    texts = read_texts(args.data)
    sent = texts * args.times
    with ExitStack() as stack:
        services = {name: stack.enter_context(service(path)) for name, path in pipelines.items()}
        started = {name: resident("VmRSS", process) for name, (_, process) in services.items()}
        ports = {name: port for name, (port, _) in services.items()}
        rows = measure(args, pipelines, ports, sent)
        memory = [
            [
                name,
                f"{size_mb(pipelines[name]):.0f}",
                started[name],
                resident("VmRSS", process),
                resident("VmHWM", process),
            ]
            for name, (_, process) in services.items()
        ]
    facts = {**vars(args), "n_texts": len(texts), "sent": len(sent), "chars": f"{sum(map(len, sent)):,}"}
    tables = (_report.table(HEADER, rows), "The services' processes:", _report.table(MEMORY_HEADER, memory))
    _report.write(args.out, "The service beside nlp.pipe", NOTE.format(**facts), *tables)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pipelines", nargs="+", metavar="NAME=DIRECTORY", help="trained pipelines")
    parser.add_argument("--data", type=Path, required=True, help=".spacy file with the texts")
    parser.add_argument("--times", type=int, default=8, help="how often each text is sent in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cpu", type=int, default=0, help="core of the services and of nlp.pipe")
    parser.add_argument("--client-cpu", type=int, default=1, help="core of the clients")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "serve.md")
    return parser.parse_args()


@contextmanager
def service(model: Path) -> Iterator[tuple[int, int]]:
    """Start a service, and yield its port and process id."""
    command = [sys.executable, "-um", "spacy", "tener", "serve", str(model), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = (re.search(r"http://.+:(\d+)", line) for line in process.stdout)
            yield next(int(found[1]) for found in lines if found), process.pid
        finally:
            process.terminate()


def measure(
    args: argparse.Namespace, pipelines: Mapping[str, Path], ports: Mapping[str, int], texts: Sequence[str]
) -> list[list[str]]:
    tasks: dict[tuple[str, str], Callable[[], object]] = {}
    latencies: dict[tuple[str, str], list[list[float]]] = {}
    for name, path in pipelines.items():
        nlp, scored = spacy.load(path), spacy.load(path)
        scored.get_pipe("tener_ner").cfg["spans_key"] = "scored"
        tasks |= {
            (name, PIPED): partial(pipe_all, nlp, texts, 64),
            (name, f"{PIPED} with probabilities"): partial(pipe_all, scored, texts, 64),
            (name, "`nlp(text)` with probabilities"): partial(call_each, scored, texts),
        }
        for asked_by, kind in KINDS.items():
            found = latencies.setdefault((name, asked_by), [])
            tasks[name, asked_by] = partial(clients, args, ports[name], kind, texts, found)
    seconds = _report.median_seconds(tasks, args.rounds, clock=time.perf_counter)
    # The clients measure their time themselves, so that starting their process is not included.
    seconds |= {row: statistics.median(took[-1] for took in of[1:]) for row, of in latencies.items()}
    chars = sum(map(len, texts))
    return [
        [
            *row,
            f"{len(texts) / took:,.0f}",
            f"{chars / took:,.0f}",
            f"{100 * seconds[row[0], PIPED] / took:.0f} %",
            *(quantiles(latencies[row][1:]) if row in latencies else ["", ""]),
        ]
        for row, took in seconds.items()
    ]


def resident(field: str, process: int) -> str:
    return f"{resident_kb(field, process) / 1024:.0f}"


def quantiles(rounds: Sequence[Sequence[float]]) -> list[str]:
    """Return the median and the 99th percentile of latencies in milliseconds, each as the median over rounds."""
    cut = [statistics.quantiles(latencies[:-1], n=100, method="inclusive") for latencies in rounds]
    return [f"{1000 * statistics.median(cuts[at] for cuts in cut):.1f}" for at in (49, 98)]


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
