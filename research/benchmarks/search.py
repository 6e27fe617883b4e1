r"""Write a page with the trials of a random search, with date, machine and versions.

    python research/benchmarks/search.py RUNS/search --title "Eight trials on Weibo" \
        --out research/results/search-weibo.md
"""

from __future__ import annotations

import argparse
from pathlib import Path

import _report
import optuna

from research.search import STORAGE, find_best, table
from spacy_tener.manifest import installed_versions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, help="directory of a search")
    parser.add_argument("--title", required=True)
    parser.add_argument("--note", help="what else there is to say about it, as its command")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    study = optuna.load_study(study_name="search", storage=f"sqlite:///{args.folder / STORAGE}")
    header, rows = table(study)
    best = find_best(study)
    chosen = f"optuna {installed_versions('optuna')['optuna']}. Dev chooses"
    if best is not None:
        chosen += f" trial {best.number}"
    _report.write(args.out, args.title, *([args.note] if args.note else []), f"{chosen}.", _report.table(header, rows))


if __name__ == "__main__":
    main()
