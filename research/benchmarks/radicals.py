"""Test whether characters with shared radicals have similar embeddings (MECT, section 5.4).

    python research/benchmarks/radicals.py 1=RUNS/weibo/mect/1/model-best 2=RUNS/weibo/mect/2/model-best

Compares the cosine similarities of embeddings before and after training, over pipelines with several seeds, and draws
MECT's Figure 5 for the first pipeline.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import _report
import numpy as np
import spacy

from research.radicals import SHOWN, Characters, Floats, draw_plane, unit_length

NOTE = (
    "Mean cosine over all pairs of characters whose radicals training has shown ({characters}), then mean ± standard "
    "deviation over {seeds} trained pipelines. Before training are fresh weights, of each pipeline's seed. Filters "
    "before training give every character much the same, so that all cosines are high: hence the second table, without "
    "the embeddings' common mean. The picture is of the first pipeline, before and after its training: the two "
    "directions in which embeddings of unit length differ most, and the names of the {nearest} nearest to {middle}."
)
NEIGHBOURS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline with radicals in it")
    parser.add_argument("--middle", default="华", help="the character whose nearest are named; the paper's is 华")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "radicals.md")
    args = parser.parse_args()
    read = [Characters(spacy.load(path)) for path in _report.named_paths(args.pipelines).values()]
    picture = args.out.with_suffix(".png")
    draw_plane(read[0], picture, middle=args.middle)
    sizes = sorted({len(characters.names) for characters in read})
    note = NOTE.format(
        characters=" to ".join(map(str, sizes[:: max(len(sizes) - 1, 1)])),
        seeds=len(read),
        nearest=SHOWN,
        middle=args.middle,
    )
    tables = [table(read, lambda vectors: vectors), table(read, lambda vectors: vectors - vectors.mean(axis=0))]
    parts = ["## Cosines of embeddings", tables[0], "## Without their common mean", tables[1]]
    _report.write(args.out, "Characters that share radicals", note, *parts, f"![Figure 5]({picture.name})")


def measure(characters: Characters, vectors: Floats) -> list[float]:
    """Return the values of one pipeline for all rows of a table."""
    units = unit_length(vectors)
    cosines = units @ units.T
    means = [float(cosines[pairs].mean()) for pairs in characters.pairs.values()]
    np.fill_diagonal(cosines, -np.inf)
    related = characters.shares.any(axis=1)
    nearest = np.argpartition(-cosines[related], NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
    part = np.take_along_axis(characters.shares[related], nearest, axis=1).mean()
    return [*means, means[0] - means[-1], 100 * float(part)]


def table(read: Sequence[Characters], change: Callable[[Floats], Floats]) -> str:
    """Return a table with a row for each measure, and columns for before and after training."""
    sides = list(read[0].vectors)
    measured = {side: [measure(characters, change(characters.vectors[side])) for characters in read] for side in sides}
    names = {name: f"{pairs.sum() // 2:,}" for name, pairs in read[0].pairs.items()}
    names |= {"sharing a radical, minus sharing none": "", f"of the {NEIGHBOURS} nearest, share a radical, %": ""}
    rows = [
        [name, pairs, *(_report.mean_sd([row[i] for row in measured[side]], 3 if i < 4 else 1) for side in sides)]
        for i, (name, pairs) in enumerate(names.items())
    ]
    return _report.table(["", "pairs", *sides], rows)


if __name__ == "__main__":
    main()
