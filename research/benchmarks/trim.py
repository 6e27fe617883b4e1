r"""Measure the size and scores of pipelines after `tener trim`, which keeps the embeddings that some texts need.

    python research/benchmarks/trim.py weibo training --systems tener+vectors,flat+vectors --data corpus \
        --raw zh-weibo-posts.txt.xz
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
from functools import partial
from pathlib import Path

import _report

from spacy_tener.files import size_mb

tener = partial(_report.tener, stdout=subprocess.DEVNULL)
NOTE = (
    "{corpus}: pipelines as they were trained, and with rows for strings that come so often at least in the training "
    "part with {raw}; `half`: in numbers of 16 bits. MB of the whole pipeline on disk. Mean ± standard deviation over "
    "seeds {seeds}."
)
HEADER = ("system", "rows kept", "MB", "dev F1", "test F1")
PARTS = ("dev", "test")


def main() -> None:
    args = parse_args()
    rows = []
    for system in args.systems.split(","):
        rows.append(row(args, system, "all"))
        for min_count in map(int, args.min_counts.split(",")):
            rows.append(row(args, system, f"{min_count} or more", "--min-count", str(min_count)))
            rows.append(row(args, system, f"{min_count} or more, half", "--min-count", str(min_count), "--half"))
    raw = " or ".join(f"`{Path(path).name}`" for path in args.raw)
    note = NOTE.format(corpus=args.corpus, raw=raw, seeds=args.seeds)
    out = args.out or _report.RESULTS / f"trim-{args.corpus}.md"
    _report.write(out, f"Smaller pipelines: {args.corpus}", note, _report.table(HEADER, rows))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus")
    parser.add_argument("runs", type=Path, help="holds CORPUS/SYSTEM/SEED/model-best, by `research grid`")
    parser.add_argument("--systems", required=True)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--min-counts", default="1,2,5")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--raw", nargs="+", required=True, help="text like that to come")
    parser.add_argument("--work", type=Path, default=Path("trimmed"))
    parser.add_argument("--out", type=Path, help="default: research/results/trim-CORPUS.md")
    return parser.parse_args()


def row(args: argparse.Namespace, system: str, strings: str, *options: str) -> list[str]:
    results = [scored(args, system, seed, options) for seed in args.seeds.split(",")]
    sizes, *scores = zip(*results, strict=True)
    return [f"`{system}`", strings, f"{statistics.fmean(sizes):.1f}", *(_report.mean_sd(part, 2) for part in scores)]


def scored(args: argparse.Namespace, system: str, seed: str, options: tuple[str, ...]) -> list[float]:
    """Return the size in megabytes, and F1 on the development and test set in percent."""
    model, data = args.runs / args.corpus / system / seed / "model-best", args.data / args.corpus
    scores = args.work / "metrics.json"
    if options:
        small = args.work / "model"
        shutil.rmtree(small, ignore_errors=True)
        tener("trim", model, data / "train.spacy", *args.raw, "--output", small, *options)
        model = small
    found = [size_mb(model)]
    for part in PARTS:
        tener("evaluate", model, data / f"{part}.spacy", "--output", scores)
        found.append(100 * json.loads(scores.read_text(encoding="utf8"))["ents_f"])
    return found


if __name__ == "__main__":
    main()
