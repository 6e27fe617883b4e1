"""Draw the figures of the papers from training runs: convergence, speed, scores, and scores by setting (sweep).

`python -m research plot` uses this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from research.scores import METRICS
from spacy_tener.errors import UserError, check_choice
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
# Marker of a published result, by the pretrained embeddings of the system.
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
    """Plot scores on the development set during training: for each system the mean, a band of one standard deviation,
    and thin lines for seeds that trained longer than the others.

    x: Unit of the x-axis, "step" or "epoch".
    y_min: Lower limit of the y-axis, to enlarge the end of training.
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
    # A line through a single point is invisible without a marker.
    marker = style.marker if len(at) == 1 else None
    axis.plot(at, means, color=style.color, linestyle=style.linestyle, marker=marker, label=name)
    axis.fill_between(at, low, high, color=style.color, alpha=0.18, linewidth=0)
    for tail in line.tails:
        axis.plot(*zip(*tail.items(), strict=True), color=style.color, ls=style.linestyle, linewidth=0.7, alpha=0.6)


def draw_speed(runs: Iterable[Run], path: Path, *, baseline: str | None = None) -> Figure:
    """Draw a bar chart of prediction speed: tokens per second, or relative to a baseline."""
    speeds: dict[str, dict[str, Summary]] = {}
    for corpus, groups in _by_corpus(run for run in runs if run.test.speed is not None).items():
        measured = {system: [run.test.speed or 0.0 for run in group.runs] for system, group in groups.items()}
        summaries = {system: summarize(values) for system, values in measured.items()}
        if baseline is not None and baseline not in summaries:
            raise UserError(f"{corpus}: no speed of the baseline {baseline}", f"There are: {', '.join(summaries)}.")
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
    """Plot the test scores of each system: all seeds, mean and standard deviation, and published results as hollow
    markers. The marker shows the pretrained embeddings of a published system, since they often differ from ours."""
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
    """Plot the test score against a setting. Other values than numbers are evenly spaced on the x-axis.

    x: Path of the setting in the config, or the end of its path, such as `k`.
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
    """Return the runs grouped by corpus and system, with all seeds of a system in one group."""
    corpora: dict[str, dict[str, SeedGroup]] = {}
    for group in group_runs(runs):
        corpora.setdefault(group.value("corpus"), {})[group.value("system")] = group
    return corpora


def _name_bars(axis: Axes, names: Sequence[str], room: int) -> None:
    """Label the bars from top to bottom. `room` is the maximum number of bars in a panel, so that bars have the same
    height in all panels."""
    axis.set_yticks(range(len(names)), names)
    axis.set_ylim(room - 0.4, -0.6)
    axis.grid(True, axis="x")


@dataclass(frozen=True)
class Curve:
    """Scores of one system on the development set during training, in percent.

    mean: Mean over all seeds, by step (or epoch). Contains only steps at which all seeds were evaluated.
    tails: For each seed that trained longer, its own scores from the end of `mean` on.
    """

    mean: Mapping[int, Summary]
    tails: tuple[Mapping[int, float], ...]


def curve(group: SeedGroup, *, x: str, metric: str) -> Curve:
    """Return the mean curve of a group of seeds. It ends when the first seed stops, since a mean over fewer seeds would
    jump."""
    logs = [read_log(run, x=x, metric=metric) for run in group.runs]
    common = sorted(set.intersection(*(set(points) for points in logs)))
    if not common:
        names = ", ".join(run.name for run in group.runs)
        raise UserError(f"No {x} at which all of these were evaluated: {names}", "Evaluate them equally often.")
    tails = [{at: score for at, score in points.items() if at >= common[-1]} for points in logs]
    mean = {at: summarize([points[at] for points in logs]) for at in common}
    return Curve(mean, tuple(tail for tail in tails if len(tail) > 1))


def has_log(run: Run) -> bool:
    """Return whether the run has a training log."""
    return (run.folder / LOG).is_file()


def read_log(run: Run, *, x: str, metric: str) -> dict[int, float]:
    """Read the scores in the training log of a run, in percent. The last evaluation of an epoch is used."""
    check_choice("axis", x, AXES)
    path = run.folder / LOG
    if not has_log(run):
        raise UserError(f"{run.folder}: there is no {LOG}", _REMEDY)
    points: dict[int, float] = {}
    for number, line in enumerate(path.read_text(encoding="utf8").splitlines(), start=1):
        if line.strip():
            try:
                point = json.loads(line)
                points[int(point[x])] = _score(point, metric)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                what = f"there is no {error}" if isinstance(error, KeyError) else f"not a line of that log: {error}"
                raise UserError(f"{path}:{number}: {what}", _REMEDY) from error
    if not points:
        raise UserError(f"{path}: nothing is logged there", _REMEDY)
    return points


def _score(point: Mapping[str, Any], metric: str) -> float:
    """Return the score in a line of the log, in percent. The `scores` of spaCy's logger are in percent. Loggers that
    write only the final `score` write a fraction of F1."""
    scores = point.get("scores") or {}
    if metric == "f" and not scores and point.get("score") is not None:
        return 100 * float(point["score"])
    name = f"ents_{metric}"
    if scores.get(name) is None:
        raise KeyError(f"{METRICS[metric]} ({name}): name it in training.score_weights")
    return float(scores[name])
