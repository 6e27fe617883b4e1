"""Write a page with the output of `research table` for finished runs, with date, machine and versions."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path

import _report


def main() -> None:
    args, options = parse_args()
    notes = [args.note] if args.note else []
    _report.write(args.out, args.title, *notes, *tables(args.runs, args.beside, options))


def tables(runs: Sequence[Path], pages: Sequence[str], options: Sequence[str]) -> list[str]:
    if not pages:
        return [_report.research("table", *runs, *options, "--format", "md", stdout=subprocess.PIPE).strip()]
    found = [_report.scores(runs, systems.split(",")[0], "--system", systems, *options) for systems in pages]
    return [*(table for table, _ in found), found[0][1]]


def parse_args() -> tuple[argparse.Namespace, list[str]]:
    parser = argparse.ArgumentParser(description=__doc__, epilog="All other options are those of `research table`.")
    parser.add_argument("runs", nargs="+", type=Path, help="directories with runs CORPUS/SYSTEM/SEED in them")
    parser.add_argument("--title", required=True)
    parser.add_argument("--note", help="what else there is to say about these runs")
    parser.add_argument(
        "--beside", nargs="+", default=[], help="a table for each of these, as in ner,tener, beside the first"
    )
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_known_args()


if __name__ == "__main__":
    main()
