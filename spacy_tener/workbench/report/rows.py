"""The rows of a table: what each group of runs reached, beside what the papers printed for the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import RemedyError, check_choice
from .groups import DEFAULT_BY, SeedGroup, group_runs
from .published import Printed, published
from .runs import Found, Run, Unfinished
from .scores import METRICS, Counts, Score, total
from .statistics import Summary, bootstrap_p, summarize, welch_p

MENTIONS = {"named": ".NAM", "nominal": ".NOM"}
_NO_COUNTS = "Write it with `python -m spacy tener evaluate`, which counts; `spacy evaluate` does not."


@dataclass(frozen=True)
class Comparison:
    """How far one system is from another.

    difference: That of the mean scores.
    p: The two-sided probability under no difference, None where there is too little to judge by.
    test: `bootstrap` over test documents and seeds; `welch`, a t-test over seeds, where runs lack counts per document.
    """

    difference: float
    p: float | None
    test: str


@dataclass(frozen=True)
class Row:
    """One line of a table. Scores are in percent.

    key: The values of what the runs are grouped by.
    label: The label, or `named` or `nominal`, or nothing where all are taken together.
    source: Where the numbers are from if not from these runs.
    seeds: The seeds that have such scores.
    gold: How many such entities the test part has.
    """

    key: tuple[Any, ...]
    label: str = ""
    source: str = ""
    seeds: tuple[int, ...] = ()
    gold: int | None = None
    p: Summary | None = None
    r: Summary | None = None
    f: Summary | None = None
    dev_f: Summary | None = None
    speed: Summary | None = None
    megabytes: Summary | None = None
    versus: Comparison | None = None


@dataclass(frozen=True)
class ScoreTable:
    """All rows, and what there are none of.

    by: What runs share that are taken together over their seeds: corpus, system, settings of the config.
    metric: The score that systems are compared by: p, r or f.
    baseline: The system that the others are compared with.
    warnings: What a reader of the rows must know.
    """

    by: tuple[str, ...]
    metric: str
    baseline: str | None
    overall: list[Row]
    labels: list[Row]
    mentions: list[Row]
    unfinished: tuple[Unfinished, ...]
    warnings: list[str]


def make_table(
    found: Found,
    *,
    by: Sequence[str] = DEFAULT_BY,
    metric: str = "f",
    baseline: str | None = None,
    per_label: bool = False,
    named_nominal: bool = False,
    printed: bool = True,
) -> ScoreTable:
    """Gather runs.

    per_label: Give a row to each label as well.
    named_nominal: Give rows to names (X.NAM) and nominal mentions (X.NOM) as well.
    printed: Set rows that the papers printed beside ours. They are of a corpus and a system: where runs are apart by
        anything else, or by less, there are none.
    """
    check_choice("metric", metric, METRICS)
    groups = group_runs(found.runs, by)
    _check_baseline(groups, found, by, baseline)
    printed = printed and sorted(by) == sorted(DEFAULT_BY)
    table = ScoreTable(tuple(by), metric, baseline, [], [], [], found.unfinished, list(_different_data(found.runs)))
    for group in groups:
        papers = published(group.value("corpus"), group.value("system")) if printed else []
        table.overall.append(_overall(group, _versus(group, groups, metric, baseline)))
        table.overall.extend(_printed_row(group, row) for row in papers)
        if per_label:
            table.labels.extend(_labels(group))
        if named_nominal and any(label.endswith(tuple(MENTIONS.values())) for label in group.runs[0].test.labels):
            table.mentions.extend(_mentions(group, papers))
    if named_nominal and not table.mentions:
        raise RemedyError("No run has labels that end in .NAM or .NOM", "Leave out --named-nominal.")
    return table


def _check_baseline(groups: Sequence[SeedGroup], found: Found, by: Sequence[str], baseline: str | None) -> None:
    if baseline is None:
        return
    if "system" not in by:
        raise RemedyError("Runs that are not grouped by system have no baseline", "Group by system, too.")
    systems = sorted({group.value("system") for group in groups})
    if baseline not in systems:
        unfinished = any(each.system == baseline for each in found.unfinished)
        state = "has no finished run" if unfinished else "is none of these systems"
        raise RemedyError(f"The baseline {baseline} {state}", f"Finished: {', '.join(systems) or 'none'}.")


def _overall(group: SeedGroup, versus: Comparison | None) -> Row:
    return Row(
        key=group.key,
        seeds=tuple(run.seed for run in group.runs),
        gold=_gold(group.runs[0]),
        **_percent(run.test.overall for run in group.runs),
        dev_f=group.summary(lambda run: 100 * run.dev.overall.f if run.dev else None),
        speed=group.summary(lambda run: run.test.speed),
        megabytes=group.summary(lambda run: run.megabytes),
        versus=versus,
    )


def _versus(group: SeedGroup, groups: Sequence[SeedGroup], metric: str, baseline: str | None) -> Comparison | None:
    """This group against the one that differs from it in its system only."""
    if baseline is None or group.value("system") == baseline:
        return None
    wanted = tuple(baseline if name == "system" else value for name, value in zip(group.by, group.key, strict=True))
    other = next((each for each in groups if each.key == wanted), None)
    return None if other is None else compare(group, other, metric)


def compare(group: SeedGroup, baseline: SeedGroup, metric: str) -> Comparison:
    """Test by documents where all runs were scored on the same ones, and otherwise by seeds only."""
    ours, theirs = group.scores(metric), baseline.scores(metric)
    difference = float(np.mean(ours) - np.mean(theirs))
    counted = [run.test.docs for run in (*group.runs, *baseline.runs)]
    gold = {tuple(tp + fn for tp, _, fn in docs) for docs in counted if docs}
    if None in counted or len(gold) != 1:
        return Comparison(difference, welch_p(ours, theirs), "welch")
    counts = np.array(counted)
    return Comparison(difference, bootstrap_p(counts[: len(ours)], counts[len(ours) :], metric), "bootstrap")


def _labels(group: SeedGroup) -> Iterator[Row]:
    for label in sorted({label for run in group.runs for label in run.test.labels}):
        having = [run for run in group.runs if label in run.test.labels]
        yield Row(
            key=group.key,
            label=label,
            seeds=tuple(run.seed for run in having),
            gold=having[0].test.counts[label].gold if having[0].test.counts else None,
            **_percent(run.test.labels[label] for run in having),
        )


def _mentions(group: SeedGroup, papers: Iterable[Printed]) -> Iterator[Row]:
    """The micro-averaged scores of all labels of a kind: from counts, since scores cannot be put together."""
    for run in group.runs:
        if run.test.counts is None:
            raise RemedyError(f"{run.folder}: metrics.json has no counts to take labels together by", _NO_COUNTS)
    seeds = tuple(run.seed for run in group.runs)
    for kind, suffix in MENTIONS.items():
        counts = [_counts(run, suffix) for run in group.runs]
        yield Row(group.key, kind, seeds=seeds, gold=counts[0].gold, **_percent(count.score for count in counts))
        for row in papers:
            if (f := getattr(row, kind)) is not None:
                yield Row(group.key, kind, _source(row), f=Summary(f))


def _printed_row(group: SeedGroup, row: Printed) -> Row:
    others = {name: getattr(row, name) for name in ("p", "r", "dev_f")}
    summaries: dict[str, Any] = {name: Summary(value) for name, value in others.items() if value is not None}
    return Row(group.key, source=_source(row), f=Summary(row.f, row.sd), **summaries)


def _source(row: Printed) -> str:
    return f"{row.model}, {row.source}, {row.condition}"


def _counts(run: Run, suffix: str = "") -> Counts:
    return total(count for label, count in (run.test.counts or {}).items() if label.endswith(suffix))


def _gold(run: Run) -> int | None:
    return None if run.test.counts is None else _counts(run).gold


def _percent(scores: Iterable[Score]) -> dict[str, Any]:
    each = list(scores)
    return {metric: summarize([100 * getattr(score, metric) for score in each]) for metric in METRICS}


def _different_data(runs: Sequence[Run]) -> Iterator[str]:
    """Runs of one corpus with unequal numbers of gold entities were not scored on the same data."""
    first: dict[str, tuple[Run, int]] = {}
    for run in runs:
        gold = _gold(run)
        if gold is None:
            continue
        other, expected = first.setdefault(run.corpus, (run, gold))
        if gold != expected:
            yield f"{run.name} was scored on {gold} entities, {other.name} on {expected}: not the same test data"
