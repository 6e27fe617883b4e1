"""A page of benchmarks from finished runs: what `tener table` says of them, with date, machine and versions."""

from __future__ import annotations

import argparse
import subprocess
from pathlib import Path

import _report


def main() -> None:
    args, options = parse_args()
    tables = _report.tener("table", *args.runs, *options, "--format", "md", stdout=subprocess.PIPE)
    notes = [args.note] if args.note else []
    _report.write(args.out, args.title, *notes, tables.strip())


def parse_args() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, epilog="All other options are those of `tener table`.")
    parser.add_argument("runs", nargs="+", type=Path, help="directories with runs CORPUS/SYSTEM/SEED in them")
    parser.add_argument("--title", required=True)
    parser.add_argument("--note", help="what else there is to say about these runs")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_known_args()


if __name__ == "__main__":
    main()
