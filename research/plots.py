"""The figures of the papers: convergence, relative speed, scores, and a score against a setting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.scores import METRICS
from spacy_tener.errors import RemedyError, check_choice
from spacy_tener.training.runs import LOG

from .canvas import COLOURS, Style, figure, styles
from .comparing import Summary, summarize
from .rows import printed_scores
from .runs import Run, SeedGroup, group_runs, is_number, order_of

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
AXES = {"step": "Training steps", "epoch": "Epochs"}
_REMEDY = (
    'Train with [training.logger] @loggers = "spacy.ConsoleLogger.v3" and output_file = the run\'s training.jsonl, '
    "and remove an older training.jsonl first: that logger does not write over it."
)


def draw_convergence(
    runs: Iterable[Run], path: Path, *, x: str = "step", metric: str = "f", y_min: float | None = None
) -> Figure:
    """Draw scores on dev during training: for each system the mean, a band of one standard deviation, and how seeds
    that trained longer went on.

    y_min: Where the y-axis begins, to see the end of training closely.
    """
    check_choice("metric", metric, METRICS)
    curves = {
        corpus: {system: curve(group, x=x, metric=metric) for system, group in groups.items()}
        for corpus, groups in _by_corpus(runs).items()
    }
    style = styles(chain(*curves.values()))
    with figure(path, curves, height=_PANEL_HEIGHT) as drawn:
        for axis, lines in zip(drawn.axes, curves.values(), strict=True):
            for system, line in lines.items():
                _draw_curve(axis, line, system, style[system])
            axis.set(xlabel=AXES[x], ylabel=f"{METRICS[metric]} on dev (%), mean ± sd")
            axis.set_ylim(bottom=y_min)
            axis.grid(True)
    return drawn


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
    """Draw a bar for each system: its tokens per second, or times the baseline's."""
    speeds: dict[str, dict[str, Summary]] = {}
    for corpus, groups in _by_corpus(run for run in runs if run.test.speed is not None).items():
        measured = {system: [run.test.speed or 0.0 for run in group.runs] for system, group in groups.items()}
        summaries = {system: summarize(values) for system, values in measured.items()}
        if baseline is not None and baseline not in summaries:
            raise RemedyError(f"{corpus}: no speed of the baseline {baseline}", f"There are: {', '.join(summaries)}.")
        unit = summaries[baseline].mean if baseline else 1.0
        speeds[corpus] = {system: Summary(s.mean / unit, s.sd and s.sd / unit) for system, s in summaries.items()}
    style, room = styles(chain(*speeds.values())), max(map(len, speeds.values()), default=0)
    with figure(path, speeds, height=1.5 + _BAR_HEIGHT * room) as drawn:
        for axis, bars in zip(drawn.axes, speeds.values(), strict=True):
            for place, (system, speed) in enumerate(bars.items()):
                bar = axis.barh(
                    place,
                    speed.mean,
                    xerr=speed.sd or 0.0,
                    height=0.62,
                    color=style[system].color,
                    alpha=0.85,
                    error_kw={"ecolor": "#333333", "capsize": 3, "linewidth": 1},
                )
                text = f"×{speed.mean:.2f}" if baseline else f"{speed.mean:,.0f}"
                axis.bar_label(bar, [text], padding=5, fontsize="small")
            _name_bars(axis, list(bars), room)
            axis.margins(x=0.18)
            axis.set_xlim(left=0)
            axis.set_xlabel(f"Speed, times that of {baseline}" if baseline else "Tokens per second")
    return drawn


def draw_scores(runs: Iterable[Run], path: Path, *, metric: str = "f", published: bool = True) -> Figure:
    """Draw each system's score on test: every seed, their mean and standard deviation, and what the papers printed, as
    hollow signs: one for each condition, since most of them are not that of our runs."""
    check_choice("metric", metric, METRICS)
    by_corpus = _by_corpus(runs)
    style, room = styles(chain(*by_corpus.values())), max(map(len, by_corpus.values()), default=0)
    with figure(path, by_corpus, height=1.5 + _BAR_HEIGHT * room) as drawn:
        for axis, (corpus, groups) in zip(drawn.axes, by_corpus.items(), strict=True):
            for place, (system, group) in enumerate(groups.items()):
                scores, colour = group.scores(metric), style[system].color
                summary = summarize(scores)
                axis.plot(scores, [place + 0.2] * len(scores), "|", color=colour, markersize=7)
                axis.errorbar(summary.mean, place, xerr=summary.sd or 0.0, fmt="o", color=colour, capsize=4)
                for row in printed_scores(corpus, system) if published else ():
                    score = getattr(row, metric)
                    if score is not None:
                        sign = _SIGNS[row.condition]
                        axis.plot(score, place, sign, color="#555555", fillstyle="none", markersize=8, label=row.kind)
            _name_bars(axis, list(groups), room)
            axis.plot([], [], "|", color="#555555", label="one seed")
            axis.set_xlabel(f"{METRICS[metric]} on test (%), mean ± sd")
    return drawn


def draw_sweep(runs: Iterable[Run], path: Path, *, x: str, metric: str = "f") -> Figure:
    """Draw the score on test against a setting: numbers at their places, other values evenly spread.

    x: The setting's path, or the end of it, as `k`.
    """
    check_choice("metric", metric, METRICS)
    lines: dict[str, dict[Any, Summary]] = {}
    for group in group_runs(runs, ("corpus", x)):
        lines.setdefault(group.value("corpus"), {})[group.value(x)] = summarize(group.scores(metric))
    values = sorted(set(chain(*lines.values())), key=order_of)
    places = values if all(map(is_number, values)) else range(len(values))
    at = dict(zip(values, places, strict=True))
    with figure(path, lines, height=_PANEL_HEIGHT) as drawn:
        for axis, line in zip(drawn.axes, lines.values(), strict=True):
            spread = [score.sd or 0.0 for score in line.values()]
            means = [score.mean for score in line.values()]
            axis.errorbar([at[value] for value in line], means, yerr=spread, capsize=4, color=COLOURS[0], marker="o")
            axis.set_xticks(list(at.values()), list(map(str, at)))
            axis.set(xlabel=x, ylabel=f"{METRICS[metric]} on test (%), mean ± sd")
            axis.grid(True)
    return drawn


def _by_corpus(runs: Iterable[Run]) -> dict[str, dict[str, SeedGroup]]:
    """Return the groups of seeds by corpus and system."""
    corpora: dict[str, dict[str, SeedGroup]] = {}
    for group in group_runs(runs):
        corpora.setdefault(group.value("corpus"), {})[group.value("system")] = group
    return corpora


def _name_bars(axis: Axes, names: Sequence[str], room: int) -> None:
    """Name the bars, the first one on top, all as high as if there were `room` of them in every panel."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(room - 0.4, -0.6)
    axis.grid(True, axis="x")


@dataclass(frozen=True)
class Curve:
    """One system's scores on dev, in percent.

    mean: Over all seeds, by the step (or epoch) at which all were evaluated.
    tails: What each seed that trained longer did from there on.
    """

    mean: Mapping[int, Summary]
    tails: tuple[Mapping[int, float], ...]


def curve(group: SeedGroup, *, x: str, metric: str) -> Curve:
    """Return the curve of a group's seeds. It ends where the first of them stopped: a mean over fewer would jump."""
    logs = [read_log(run, x=x, metric=metric) for run in group.runs]
    common = sorted(set.intersection(*(set(points) for points in logs)))
    if not common:
        names = ", ".join(run.name for run in group.runs)
        raise RemedyError(f"No {x} at which all of these were evaluated: {names}", "Evaluate them equally often.")
    tails = [{at: score for at, score in points.items() if at >= common[-1]} for points in logs]
    mean = {at: summarize([points[at] for points in logs]) for at in common}
    return Curve(mean, tuple(tail for tail in tails if len(tail) > 1))


def has_log(run: Run) -> bool:
    """Return whether there is a log of the training."""
    return (run.folder / LOG).is_file()


def read_log(run: Run, *, x: str, metric: str) -> dict[int, float]:
    """Read the scores of a run's log, in percent. Of several evaluations in an epoch the last one counts."""
    check_choice("axis", x, AXES)
    path = run.folder / LOG
    if not has_log(run):
        raise RemedyError(f"{run.folder}: there is no {LOG}", _REMEDY)
    points: dict[int, float] = {}
    for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
        if line.strip():
            try:
                point = json.loads(line)
                points[int(point[x])] = _score(point, metric)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                what = f"there is no {error}" if isinstance(error, KeyError) else f"not a line of that log: {error}"
                raise RemedyError(f"{path}:{number}: {what}", _REMEDY) from error
    if not points:
        raise RemedyError(f"{path}: nothing is logged there", _REMEDY)
    return points


def _score(point: Mapping[str, Any], metric: str) -> float:
    """Return the score of a line of a log, in percent. spaCy's logger writes percent; one that writes only the final
    score wrote F1, as a fraction."""
    scores = point.get("scores") or {}
    if metric == "f" and not scores and point.get("score") is not None:
        return 100 * float(point["score"])
    name = f"ents_{metric}"
    if scores.get(name) is None:
        raise KeyError(f"{METRICS[metric]} ({name}): name it in training.score_weights")
    return float(scores[name])
