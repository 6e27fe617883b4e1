"""Whether characters that share components lie closer than others: `tener components` over pipelines trained with
several seeds, as one page with the picture of the first of them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import _report

RESULTS = Path(__file__).parent / "results"
NOTE = (
    "Mean cosine over all pairs of characters whose components training has shown ({characters}), then mean ± standard "
    "deviation over {seeds} trained pipelines. Before training are fresh weights, of each pipeline's seed. Filters "
    "before training give every character much the same, so that all cosines are high: hence the second table, without "
    "the embeddings' common mean. The picture is of the first pipeline, before and after its training."
)
GROUPS = {
    "component": "pairs that share a component",
    "radical": "pairs that share the radical",
    "neither": "pairs that share no component",
}
Closeness = Mapping[str, Any]


def main() -> None:
    args = parse_args()
    paths = _report.named_paths(args.pipelines)
    picture = args.out.with_suffix(".png")
    found = [measure(path, picture if i == 0 else None) for i, path in enumerate(paths.values())]
    counts = sorted({each["characters"] for each in found})
    note = NOTE.format(characters=" to ".join(map(str, (counts[0], counts[-1])[: len(counts)])), seeds=len(found))
    tables = [table(found, form) for form in ("cosines", "without_mean")]
    titles = ("Cosines of embeddings", "Without their common mean")
    parts = [text for title, part in zip(titles, tables, strict=True) for text in (f"## {title}", part)]
    _report.write(args.out, "Characters that share components", note, *parts, f"![Figure 5]({picture.name})")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline with components in it")
    parser.add_argument("--out", type=Path, default=RESULTS / "components.md")
    return parser.parse_args()


def measure(pipeline: Path, picture: Path | None) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        numbers = Path(folder) / "numbers.json"
        command = [sys.executable, "-m", "spacy", "tener", "components", str(pipeline), "--output", str(numbers)]
        command += ["--plot", str(picture), "--initial"] if picture else []
        subprocess.run(command, check=True, env=_report.one_thread())
        found: dict[str, Any] = json.loads(numbers.read_text(encoding="utf8"))
        return found


def table(found: Sequence[Mapping[str, Any]], form: str) -> str:
    """The rows of one kind of cosine, over all pipelines."""

    def row(name: str, pairs: str, value: Callable[[Closeness], float], digits: int = 3) -> list[str]:
        sides = ([value(each[side][form]) for each in found] for side in ("before", "after"))
        return [name, pairs, *(_report.mean_sd(values, digits) for values in sides)]

    rows = []
    for group, name in GROUPS.items():
        pairs = f"{found[0]['after'][form][group]['pairs']:,}"
        rows.append(row(name, pairs, lambda closeness, group=group: closeness[group]["mean"]))
    rows.append(row("sharing a component, minus sharing none", "", lambda closeness: closeness["difference"]))
    nearest = "of the 10 nearest, share a component, %"
    rows.append(row(nearest, "", lambda closeness: 100 * closeness["neighbours"], digits=1))
    return _report.table(["", "pairs", "before training", "after training"], rows)


if __name__ == "__main__":
    main()
