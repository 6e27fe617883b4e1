"""The figures of the papers: convergence, relative speed, scores, and a score against a setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import RemedyError, check_choice
from .canvas import Style, draw, styles
from .curves import AXES, Curve, curve
from .groups import SeedGroup, group_runs, is_number, order_of
from .published import published as printed_rows
from .runs import Run
from .scores import METRICS
from .statistics import Summary, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_HEIGHT = 3.8
_BAR_HEIGHT = 0.34
# By what a printed system started from.
_SIGNS = {
    "pretrained vectors": "D",
    "pretrained vectors and BERT": "s",
    "pretrained vectors and ELMo": "^",
    "random embeddings, one seed": "v",
    "vectors from law texts, one seed": "p",
}


def draw_convergence(
    runs: Iterable[Run], path: Path, *, x: str = "step", metric: str = "f", y_min: float | None = None
) -> Figure:
    """A panel for each corpus; for each system the mean on dev, a band of one standard deviation, and how seeds that
    trained longer went on.

    y_min: Where the y-axis begins, to see the end of training closely.
    """
    check_choice("metric", metric, METRICS)
    curves = {
        corpus: {system: curve(group, x=x, metric=metric) for system, group in groups.items()}
        for corpus, groups in _by_corpus(runs).items()
    }
    style = styles(chain(*curves.values()))

    def paint(axis: Axes, lines: Mapping[str, Curve]) -> None:
        for system, line in lines.items():
            _draw_curve(axis, line, system, style[system])
        axis.set(xlabel=AXES[x], ylabel=f"{METRICS[metric]} on dev (%), mean ± sd")
        axis.set_ylim(bottom=y_min)
        axis.grid(True)

    return draw(path, curves, paint, height=_PANEL_HEIGHT)


def _draw_curve(axis: Axes, line: Curve, name: str, style: Style) -> None:
    at, means = list(line.mean), [score.mean for score in line.mean.values()]
    low = [max(score.mean - (score.sd or 0.0), 0.0) for score in line.mean.values()]
    high = [min(score.mean + (score.sd or 0.0), 100.0) for score in line.mean.values()]
    # A single evaluation is a point, which a line does not show.
    marker = style.marker if len(at) == 1 else None
    axis.plot(at, means, color=style.color, linestyle=style.linestyle, marker=marker, label=name)
    axis.fill_between(at, low, high, color=style.color, alpha=0.18, linewidth=0)
    for tail in line.tails:
        axis.plot(*zip(*tail.items(), strict=True), color=style.color, ls=style.linestyle, linewidth=0.7, alpha=0.6)


def draw_speed(runs: Iterable[Run], path: Path, *, baseline: str | None = None) -> Figure:
    """A panel for each corpus, a bar for each system: words per second, or times the baseline's."""
    speeds: dict[str, dict[str, Summary]] = {}
    for corpus, groups in _by_corpus(run for run in runs if run.test.speed is not None).items():
        each = {system: summarize([run.test.speed or 0.0 for run in group.runs]) for system, group in groups.items()}
        if baseline is not None and baseline not in each:
            raise RemedyError(f"{corpus}: no speed of the baseline {baseline}", f"There are: {', '.join(each)}.")
        unit = each[baseline].mean if baseline else 1.0
        speeds[corpus] = {system: Summary(s.mean / unit, s.sd and s.sd / unit) for system, s in each.items()}
    style, room = styles(chain(*speeds.values())), max(map(len, speeds.values()), default=0)

    def paint(axis: Axes, bars: Mapping[str, Summary]) -> None:
        for place, (system, speed) in enumerate(bars.items()):
            axis.barh(place, speed.mean, height=0.62, color=style[system].color, alpha=0.85)
            axis.errorbar(speed.mean, place, xerr=speed.sd or 0.0, color="#333333", capsize=3, linewidth=1)
            text = f"×{speed.mean:.2f}" if baseline else f"{speed.mean:,.0f}"
            end = speed.mean + (speed.sd or 0.0)
            axis.annotate(text, (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize="small")
        _name_bars(axis, list(bars), room)
        axis.margins(x=0.18)
        axis.set_xlim(left=0)
        axis.set_xlabel(f"Speed, times that of {baseline}" if baseline else "Words per second")

    return draw(path, speeds, paint, height=1.5 + _BAR_HEIGHT * room)


def draw_scores(runs: Iterable[Run], path: Path, *, metric: str = "f", published: bool = True) -> Figure:
    """A panel for each corpus, a line for each system: every seed, their mean and standard deviation, and what the
    papers printed, as hollow signs: one for each condition, since most of them are not that of our runs."""
    check_choice("metric", metric, METRICS)
    by_corpus = _by_corpus(runs)
    style, room = styles(chain(*by_corpus.values())), max(map(len, by_corpus.values()), default=0)

    def paint(axis: Axes, groups: Mapping[str, SeedGroup]) -> None:
        for place, (system, group) in enumerate(groups.items()):
            scores, colour = group.scores(metric), style[system].color
            summary = summarize(scores)
            axis.plot(scores, [place + 0.2] * len(scores), "|", color=colour, markersize=7)
            axis.errorbar(summary.mean, place, xerr=summary.sd or 0.0, fmt="o", color=colour, capsize=4)
            for row in printed_rows(group.value("corpus"), system) if published else ():
                if (score := getattr(row, metric)) is not None:
                    sign = _SIGNS[row.condition]
                    axis.plot(score, place, sign, color="#555555", fillstyle="none", markersize=8, label=row.kind)
        _name_bars(axis, list(groups), room)
        axis.plot([], [], "|", color="#555555", label="one seed")
        axis.set_xlabel(f"{METRICS[metric]} on test (%), mean ± sd")

    return draw(path, by_corpus, paint, height=1.5 + _BAR_HEIGHT * room)


def draw_sweep(
    runs: Iterable[Run], path: Path, *, x: str, by: Sequence[str] = (), metric: str = "f", log_x: bool = False
) -> Figure:
    """A panel for each corpus, a score on test against a setting; a line for each value of what the runs are grouped
    by."""
    check_choice("metric", metric, METRICS)
    lines: dict[str, dict[str, dict[Any, Summary]]] = {}
    for group in group_runs(runs, ("corpus", *by, x)):
        name = ", ".join(map(str, group.key[1:-1]))
        line = lines.setdefault(group.value("corpus"), {}).setdefault(name, {})
        line[group.key[-1]] = summarize(group.scores(metric))
    style = styles(chain(*lines.values()))
    values = sorted({value for each in lines.values() for line in each.values() for value in line}, key=order_of)
    numbers = all(map(is_number, values))
    if log_x and values and not (numbers and min(values) > 0):
        raise RemedyError(f"'{x}' has values without a logarithm", "Leave out --log-x.")
    # Numbers stand at their place, if all are numbers, and others evenly spread.
    at = {value: value if numbers else place for place, value in enumerate(values)}

    def paint(axis: Axes, each: Mapping[str, Mapping[Any, Summary]]) -> None:
        for name, line in each.items():
            means, spread = [score.mean for score in line.values()], [score.sd or 0.0 for score in line.values()]
            axis.errorbar([at[v] for v in line], means, yerr=spread, capsize=4, label=name, **vars(style[name]))
        if log_x:
            axis.set_xscale("log")
        axis.set_xticks(list(at.values()), list(map(str, at)))
        axis.minorticks_off()
        axis.set(xlabel=x, ylabel=f"{METRICS[metric]} on test (%), mean ± sd")
        axis.grid(True)

    return draw(path, lines, paint, height=_PANEL_HEIGHT)


def _by_corpus(runs: Iterable[Run]) -> dict[str, dict[str, SeedGroup]]:
    """The groups of seeds by corpus and system."""
    corpora: dict[str, dict[str, SeedGroup]] = {}
    for group in group_runs(runs):
        corpora.setdefault(group.value("corpus"), {})[group.value("system")] = group
    return corpora


def _name_bars(axis: Axes, names: Sequence[str], room: int) -> None:
    """A line for each name, the first one on top, as high as if there were `room` of them in every panel."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(room - 0.4, -0.6)
    axis.grid(True, axis="x")
