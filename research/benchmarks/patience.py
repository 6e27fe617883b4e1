"""Estimate the effect of early stopping from the logs of complete training runs, without training again.

    python research/benchmarks/patience.py project/training --out research/results/patience.md

Until it stops, a training run with `patience` is identical to one without, so its best score follows from the log.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import _report
import srsly

SHARES = (0.1, 0.2, 1 / 3)
NOTE = (
    "All trainings were whole. Of each, what `training.patience` of a share of its steps would have left: the best F1 "
    "on dev, and the share of steps that are trained. Means over seeds; in brackets, how many seeds are lower than "
    "in the whole training."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, help="directory of runs CORPUS/SYSTEM/SEED")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    trainings: dict[tuple[str, str], list[list[tuple[int, float]]]] = {}
    for path in sorted(args.runs.glob("*/*/*/training.jsonl")):
        corpus, system = path.parts[-4:-2]
        points = [(row["step"], 100 * row["score"]) for row in srsly.read_jsonl(path)]
        trainings.setdefault((corpus, system), []).append(points)
    rows = []
    for (corpus, system), seeds in trainings.items():
        best = [max(score for _, score in points) for points in seeds]
        cells = [corpus, system, str(len(seeds)), f"{mean(best):.1f}"]
        for share in SHARES:
            found = [stopped(points, share) for points in seeds]
            n_lower = sum(score < whole for (score, _), whole in zip(found, best, strict=True))
            scores, lengths = zip(*found, strict=True)
            cells += [f"{mean(scores):.1f} ({n_lower})", f"{mean(lengths):.0%}"]
        rows.append(cells)
    shown = [name for share in SHARES for name in (f"patience {share:.0%}: F1", "steps")]
    header = ["corpus", "system", "seeds", "whole: dev F1", *shown]
    _report.write(args.out, "Trainings that end early", NOTE, _report.table(header, rows))


def stopped(points: Sequence[tuple[int, float]], share: float) -> tuple[float, float]:
    """Return the best score until training stops, and the fraction of all steps until then.

    points (Sequence[Tuple[int, float]]): Step and score of each evaluation.
    share (float): The patience, as a fraction of all steps.
    """
    last = points[-1][0]
    best_step, best = points[0]
    for step, score in points:
        if score > best:
            best_step, best = step, score
        elif step - best_step >= share * last:
            return best, step / last
    return best, 1.0


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


if __name__ == "__main__":
    main()
