"""`tener annotate --engine ray` on nodes that are all on this machine, beside the same command without Ray.

An actor and then a whole node are killed in the midst, and the outputs are compared text by text. The archive may be
`texts.jsonl` that `research/benchmarks/annotate.py` leaves in its directory.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _report
from ray.cluster_utils import Cluster

NOTE = (
    "`{model}`, {lines:,} records, JSONL in and out. {nodes} nodes of Ray with a core each, on one machine; an actor "
    "with one thread on each. Seconds on the clock, with the start of the actors but not of the cluster. Killed: an "
    "actor when a quarter of the parts was there, and a node when half of them was, by `kill -9`."
)
HEADER = ("", "seconds", "status", "records", "parts", "records of one machine, each once")
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}


def main() -> None:
    args = parse_args()
    os.environ.update(ENVIRONMENT)
    local, calm, killed = (args.work / name for name in ("local", "ray", "ray-killed"))
    rows = [row("one machine", annotate(args, local, "--processes", str(args.nodes)), local, local)]
    for name, output, kills in (("Ray", calm, False), ("Ray, killed", killed, True)):
        cluster = start(args)
        watch = killing(cluster, output, len(parts(local))) if kills else lambda: None
        options = ("--engine", "ray", "--address", cluster.address, "--actors", f"1,{args.nodes}")
        rows.append(row(name, annotate(args, output, *options, watch=watch), output, local))
        cluster.shutdown()
    facts = {"model": args.name or args.model, "lines": len(records(local)), "nodes": args.nodes}
    _report.write(args.out, "Archives on Ray", NOTE.format(**facts), _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="directory of a trained pipeline")
    parser.add_argument("--name", help="what the page calls it")
    parser.add_argument("archive", type=Path, nargs="+", help="what to annotate")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--part-size", type=int, default=10_000)
    parser.add_argument("--store", type=int, default=200, help="megabytes of the object store of each node")
    parser.add_argument("--work", type=Path, default=Path("archive-ray"), help="directory for outputs")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "annotate-ray.md")
    return parser.parse_args()


def start(args: argparse.Namespace) -> Cluster:
    """The first node has the command, and actors as the others."""
    node: dict[str, Any] = {"num_cpus": 1, "object_store_memory": args.store << 20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    for _ in range(args.nodes - 1):
        cluster.add_node(**node)
    return cluster


def annotate(
    args: argparse.Namespace, output: Path, *options: str, watch: Callable[[], None] = lambda: None
) -> tuple[float, int]:
    """Seconds and exit status. watch: called again and again meanwhile."""
    shutil.rmtree(output, ignore_errors=True)
    words = [args.model, *args.archive, "-o", output, "-f", "jsonl", "--part-size", args.part_size, *options]
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "spacy", "tener", "annotate", *map(str, words)])
    while process.poll() is None:
        watch()
        time.sleep(0.2)
    return time.perf_counter() - begin, process.returncode


def killing(cluster: Cluster, output: Path, whole: int) -> Callable[[], None]:
    left = [(whole / 4, kill_actor), (whole / 2, lambda: kill_node(cluster))]

    def watch() -> None:
        if left and len(parts(output)) >= left[0][0]:
            left.pop(0)[1]()

    return watch


def kill_actor() -> None:
    listed = subprocess.run(["ps", "-eo", "pid=,args="], capture_output=True, text=True, check=True).stdout
    os.kill(next(int(line.split()[0]) for line in listed.splitlines() if "ray::MapWorker" in line), signal.SIGKILL)


def kill_node(cluster: Cluster) -> None:
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


def parts(output: Path) -> list[Path]:
    return sorted(output.glob("part-*"))


def records(output: Path) -> list[bytes]:
    """A digest of each record, sorted: all are kept, so that what is there twice is seen."""
    lines = (line for path in parts(output) for line in path.read_bytes().splitlines())
    return sorted(hashlib.blake2b(line, digest_size=16).digest() for line in lines)


def row(name: str, ran: tuple[float, int], output: Path, local: Path) -> list[str]:
    found = records(output)
    equal = "yes" if found == records(local) else "NO"
    return [name, f"{ran[0]:.0f}", str(ran[1]), f"{len(found):,}", str(len(parts(output))), equal]


if __name__ == "__main__":
    main()
