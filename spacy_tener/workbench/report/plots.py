"""The figures of the papers: convergence, relative speed, scores, and a score against a setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .canvas import Style, add_legend, draw, panels, styles
from .curves import AXES, Curve, curve
from .errors import ReportError
from .groups import Group, group_runs
from .published import BERT, ELMO, LAW_VECTORS, RANDOM, VECTORS, Printed, published
from .runs import Run
from .scores import METRICS, check_metric
from .settings import is_number, order_of
from .statistics import Summary, summarize

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_HEIGHT = 3.8
_BAR_HEIGHT = 0.34
_SIGNS = {VECTORS: "D", BERT: "s", ELMO: "^", RANDOM: "v", LAW_VECTORS: "p"}
Panels = Mapping[str, Sequence[Group]]


def draw_convergence(
    runs: Iterable[Run], path: Path, *, x: str = "step", metric: str = "f", y_min: float | None = None
) -> Figure:
    """A panel for each corpus; for each system the mean on dev, a band of one standard deviation, and how seeds that
    trained longer went on.

    y_min: Where the y-axis begins, to see the end of training closely.
    """
    check_metric(metric)
    by_corpus = _by_corpus(runs)
    curves = {
        corpus: {group.value("system"): curve(group, x=x, metric=metric) for group in groups}
        for corpus, groups in by_corpus.items()
    }
    return draw(path, partial(_convergence, curves, AXES[x], f"{METRICS[metric]} on dev (%), mean ± sd", y_min))


def draw_speed(runs: Iterable[Run], path: Path, *, baseline: str | None = None) -> Figure:
    """A panel for each corpus, a bar for each system: words per second, or times the baseline's."""
    by_corpus = _by_corpus(run for run in runs if run.test.speed is not None)
    speeds = {corpus: {g.value("system"): _speed(g) for g in groups} for corpus, groups in by_corpus.items()}
    if baseline is not None:
        speeds = {corpus: _relative(corpus, each, baseline) for corpus, each in speeds.items()}
    return draw(path, partial(_speed_bars, speeds, baseline))


def draw_scores(runs: Iterable[Run], path: Path, *, metric: str = "f", printed: bool = True) -> Figure:
    """A panel for each corpus, a line for each system: every seed, their mean and standard deviation, and what the
    papers printed."""
    check_metric(metric)
    return draw(path, partial(_scores, _by_corpus(runs), metric, printed))


def draw_sweep(
    runs: Iterable[Run],
    path: Path,
    *,
    x: str,
    by: Sequence[str] = (),
    metric: str = "f",
    log: bool = False,
) -> Figure:
    """A panel for each corpus, a score on test against a setting; a line for each value of what the runs are grouped
    by."""
    check_metric(metric)
    by_corpus = _by_corpus(runs, (*by, x))
    lines: dict[str, dict[str, list[Group]]] = {corpus: {} for corpus in by_corpus}
    for corpus, groups in by_corpus.items():
        for group in groups:
            lines[corpus].setdefault(", ".join(map(str, group.key[1:-1])), []).append(group)
    return draw(path, partial(_sweep, lines, x, metric, log))


def _by_corpus(runs: Iterable[Run], by: Sequence[str] = ("system",)) -> dict[str, list[Group]]:
    corpora: dict[str, list[Group]] = {}
    for group in group_runs(runs, ("corpus", *by)):
        corpora.setdefault(group.value("corpus"), []).append(group)
    if not corpora:
        raise ReportError("There is nothing to draw", "Finish a run first.")
    return corpora


def _names(names: Iterable[str]) -> dict[str, Style]:
    """A style for each name, in the order of their first mention."""
    return styles(list(dict.fromkeys(names)))


def _convergence(curves: Mapping[str, Mapping[str, Curve]], x_label: str, y_label: str, y_min: float | None) -> Figure:
    figure, axes = panels(list(curves), height=_PANEL_HEIGHT)
    style = _names(system for each in curves.values() for system in each)
    for axis, each in zip(axes, curves.values(), strict=True):
        for system, line in each.items():
            _draw_curve(axis, line, system, style[system])
        axis.set(xlabel=x_label, ylabel=y_label)
        axis.set_ylim(bottom=y_min)
        axis.grid(True)
    add_legend(figure, axes)
    return figure


def _draw_curve(axis: Axes, line: Curve, name: str, style: Style) -> None:
    means = [score.mean for score in line.scores]
    spread = [score.sd or 0.0 for score in line.scores]
    low = [max(mean - sd, 0.0) for mean, sd in zip(means, spread, strict=True)]
    high = [min(mean + sd, 100.0) for mean, sd in zip(means, spread, strict=True)]
    # A single evaluation is a point, which a line does not show.
    marker = style.marker if len(line.x) == 1 else None
    axis.plot(line.x, means, color=style.color, linestyle=style.linestyle, marker=marker, label=name)
    axis.fill_between(line.x, low, high, color=style.color, alpha=0.18, linewidth=0)
    for tail in line.tails:
        x, y = zip(*tail.items(), strict=True)
        axis.plot(x, y, color=style.color, linestyle=style.linestyle, linewidth=0.7, alpha=0.6)


def _speed(group: Group) -> Summary:
    speed = group.summary(lambda run: run.test.speed)
    assert speed is not None  # runs without were left out
    return speed


def _relative(corpus: str, speeds: Mapping[str, Summary], baseline: str) -> dict[str, Summary]:
    if baseline not in speeds:
        raise ReportError(f"{corpus}: no speed of the baseline {baseline}", f"There are: {', '.join(speeds)}.")
    unit = speeds[baseline].mean
    return {
        name: Summary(mean=speed.mean / unit, sd=None if speed.sd is None else speed.sd / unit, n=speed.n)
        for name, speed in speeds.items()
    }


def _speed_bars(speeds: Mapping[str, Mapping[str, Summary]], baseline: str | None) -> Figure:
    figure, axes = panels(list(speeds), height=_height(map(len, speeds.values())))
    style = _names(system for each in speeds.values() for system in each)
    for axis, each in zip(axes, speeds.values(), strict=True):
        for place, (system, speed) in enumerate(each.items()):
            axis.barh(place, speed.mean, height=0.62, color=style[system].color, alpha=0.85)
            axis.errorbar(speed.mean, place, xerr=speed.sd or 0.0, color="#333333", capsize=3, linewidth=1)
            text = f"×{speed.mean:.2f}" if baseline else f"{speed.mean:,.0f}"
            end = speed.mean + (speed.sd or 0.0)
            axis.annotate(text, (end, place), xytext=(5, 0), textcoords="offset points", va="center", fontsize="small")
        _rows(axis, list(each), room=max(map(len, speeds.values())))
        axis.margins(x=0.18)
        axis.set_xlim(left=0)
        axis.set_xlabel(f"Speed, times that of {baseline}" if baseline else "Words per second")
    return figure


def _scores(by_corpus: Panels, metric: str, printed: bool) -> Figure:
    figure, axes = panels(list(by_corpus), height=_height(map(len, by_corpus.values())))
    style = _names(group.value("system") for groups in by_corpus.values() for group in groups)
    for axis, (corpus, groups) in zip(axes, by_corpus.items(), strict=True):
        for place, group in enumerate(groups):
            system = group.value("system")
            _draw_seeds(axis, place, group, metric, style[system])
            if printed:
                _draw_printed(axis, place, published(corpus, system), metric)
        _rows(axis, [group.value("system") for group in groups], room=max(map(len, by_corpus.values())))
        axis.plot([], [], "|", color="#555555", label="one seed")
        axis.set_xlabel(f"{METRICS[metric]} on test (%), mean ± sd")
    add_legend(figure, axes)
    return figure


def _draw_seeds(axis: Axes, place: int, group: Group, metric: str, style: Style) -> None:
    values = [100 * score for score in group.scores(metric).values()]
    summary = summarize(values)
    axis.plot(values, [place + 0.2] * len(values), "|", color=style.color, markersize=7)
    axis.errorbar(summary.mean, place, xerr=summary.sd or 0.0, fmt="o", color=style.color, capsize=4)


def _draw_printed(axis: Axes, place: int, rows: Iterable[Printed], metric: str) -> None:
    """Hollow signs, one for each condition, since most of them are not that of our runs."""
    for row in rows:
        score = getattr(row, metric)
        if score is not None:
            sign = _SIGNS[row.condition]
            axis.plot(score, place, sign, color="#555555", fillstyle="none", markersize=8, label=row.kind)


def _sweep(lines: Mapping[str, Mapping[str, Sequence[Group]]], x: str, metric: str, log: bool) -> Figure:
    values = {group.key[-1] for each in lines.values() for groups in each.values() for group in groups}
    at = _positions(sorted(values, key=order_of), x, log)
    figure, axes = panels(list(lines), height=_PANEL_HEIGHT)
    style = _names(name for each in lines.values() for name in each)
    for axis, each in zip(axes, lines.values(), strict=True):
        for name, groups in each.items():
            _draw_points(axis, {at[group.key[-1]]: _score(group, metric) for group in groups}, name, style[name])
        if log:
            axis.set_xscale("log")
        axis.set_xticks(list(at.values()), list(map(str, at)))
        axis.minorticks_off()
        axis.set(xlabel=x, ylabel=f"{METRICS[metric]} on test (%), mean ± sd")
        axis.grid(True)
    add_legend(figure, axes)
    return figure


def _positions(values: Sequence[Any], x: str, log: bool) -> dict[Any, float]:
    """Where each value of a setting stands: numbers at their place, if all are numbers, and others evenly spread."""
    numbers = all(map(is_number, values))
    if log and not (numbers and min(values) > 0):
        raise ReportError(f"'{x}' has values without a logarithm", "Leave out --log-x.")
    return {value: value if numbers else place for place, value in enumerate(values)}


def _draw_points(axis: Axes, points: Mapping[float, Summary], name: str, style: Style) -> None:
    axis.errorbar(
        list(points),
        [score.mean for score in points.values()],
        yerr=[score.sd or 0.0 for score in points.values()],
        color=style.color,
        linestyle=style.linestyle,
        marker=style.marker,
        capsize=4,
        label=name,
    )


def _score(group: Group, metric: str) -> Summary:
    return summarize([100 * score for score in group.scores(metric).values()])


def _height(rows: Iterable[int]) -> float:
    return 1.5 + _BAR_HEIGHT * max(rows)


def _rows(axis: Axes, names: Sequence[str], *, room: int) -> None:
    """A line for each name, the first one on top, as high as if there were so many in every panel."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(room - 0.4, -0.6)
    axis.grid(True, axis="x")
