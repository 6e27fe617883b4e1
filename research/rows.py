"""Collect the rows of a score table: scores of our training runs, next to published scores on the same corpora.

`published.csv` contains scores from the papers, and scores that we measured with the papers' released code on one CPU
core, in percent. Systems have the same names as in `grid`. Baselines of a paper and results quoted from other papers
are listed under the system that was measured. FLAT-ATSSA was published with BERT only, so its rows are also shown for
the system without BERT, with a note.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from research.scores import METRICS, Confusion, Score, total
from spacy_tener.errors import UserError, check_choice

from .comparing import Summary, bootstrap_p, summarize, welch_p
from .runs import DEFAULT_BY, FoundRuns, Run, SeedGroup, UnfinishedRun, group_runs
from .systems import parts_of

MENTIONS = {"named": ".NAM", "nominal": ".NOM"}
_NO_COUNTS = "Score the run with `python -m spacy tener evaluate`; `spacy evaluate` writes no counts."


@dataclass(frozen=True)
class Comparison:
    """The difference between the scores of two systems.

    difference: Difference of the mean scores.
    p: Two-sided p-value. None if there are too few runs.
    test: `bootstrap` over test documents and seeds; or `welch`, a t-test over seeds, if runs lack counts per document.
    """

    difference: float
    p: float | None
    test: str


@dataclass(frozen=True)
class PrintedScores:
    """A published result: one row of a table in a paper, for one corpus.

    corpus, system: Names as in `grid`.
    model: Name of the system in the paper.
    source: The paper and its table, or "released code".
    condition: The pretrained embeddings that the model uses.
    f, sd, p, r, dev_f: Scores on the test set, and F1 on the development set.
    named, nominal: F1 on Weibo's named entities only, and on its nominal mentions only.
    """

    corpus: str
    system: str
    model: str
    source: str
    condition: str
    f: float
    sd: float | None = None
    p: float | None = None
    r: float | None = None
    dev_f: float | None = None
    named: float | None = None
    nominal: float | None = None

    @property
    def kind(self) -> str:
        """The text in a legend: the source and the pretrained embeddings."""
        return f"{'released code' if self.source == 'released code' else 'printed'}: {self.condition}"


@dataclass(frozen=True)
class Row:
    """One row of a table. All scores are in percent.

    key: Values by which the runs are grouped.
    label: The entity label, `named` or `nominal`, or an empty string for all labels.
    source: Description of a published result. Empty for our own runs.
    seeds: Seeds of the runs.
    gold: Number of gold entities in the test set.
    p, r, f, dev_f, speed, megabytes: Mean and standard deviation over seeds.
    versus: Comparison with the baseline.
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
    """The rows of a score table, unfinished runs, and warnings.

    by: Names by which runs are grouped: corpus, system, or settings of the config.
    metric: The score that is compared: p, r or f.
    baseline: The system that all other systems are compared with.
    overall, labels, mentions: Rows for all labels together, by label, and for named and nominal mentions.
    """

    by: tuple[str, ...]
    metric: str
    baseline: str | None
    overall: list[Row]
    labels: list[Row]
    mentions: list[Row]
    unfinished: tuple[UnfinishedRun, ...]
    warnings: list[str]


def make_table(
    found: FoundRuns,
    *,
    by: Sequence[str] = DEFAULT_BY,
    metric: str = "f",
    baseline: str | None = None,
    per_label: bool = False,
    named_nominal: bool = False,
    printed: bool = True,
) -> ScoreTable:
    """Collect training runs into the rows of a table.

    per_label: Add a row for each label.
    named_nominal: Add rows for named entities (X.NAM) and nominal mentions (X.NOM).
    printed: Add published results. They are only available for runs grouped by corpus and system.
    """
    check_choice("metric", metric, METRICS)
    groups = group_runs(found.runs, by)
    _check_baseline(groups, found, by, baseline)
    printed = printed and sorted(by) == sorted(DEFAULT_BY)
    table = ScoreTable(tuple(by), metric, baseline, [], [], [], found.unfinished, list(_different_data(found.runs)))
    for group in groups:
        papers = printed_scores(group.value("corpus"), group.value("system")) if printed else []
        table.overall.append(_overall(group, _versus(group, groups, metric, baseline)))
        table.overall.extend(_printed_row(group, row) for row in papers)
        if per_label:
            table.labels.extend(_labels(group))
        if named_nominal and any(label.endswith(tuple(MENTIONS.values())) for label in group.runs[0].test.labels):
            table.mentions.extend(_mentions(group, papers))
    if named_nominal and not table.mentions:
        raise UserError("No run has labels that end in .NAM or .NOM", "Leave out --named-nominal.")
    return table


def _check_baseline(groups: Sequence[SeedGroup], found: FoundRuns, by: Sequence[str], baseline: str | None) -> None:
    if baseline is None:
        return
    if "system" not in by:
        raise UserError("Runs that are not grouped by system have no baseline", "Group by system, too.")
    systems = sorted({group.value("system") for group in groups})
    if baseline not in systems:
        unfinished = any(run.system == baseline for run in found.unfinished)
        state = "has no finished run" if unfinished else "is not one of these systems"
        raise UserError(f"The baseline {baseline} {state}", f"Finished: {', '.join(systems) or 'none'}.")


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
    """Compare a group with the runs of the baseline that have the same other values."""
    if baseline is None or group.value("system") == baseline:
        return None
    wanted = tuple(baseline if name == "system" else value for name, value in zip(group.by, group.key, strict=True))
    counterpart = next((group for group in groups if group.key == wanted), None)
    return None if counterpart is None else compare(group, counterpart, metric)


def compare(group: SeedGroup, baseline: SeedGroup, metric: str) -> Comparison:
    """Test the difference with a bootstrap over documents if all runs were scored on the same documents. Otherwise, use
    a t-test over seeds."""
    scores, baseline_scores = group.scores(metric), baseline.scores(metric)
    difference = float(np.mean(scores) - np.mean(baseline_scores))
    counted = [run.test.docs for run in (*group.runs, *baseline.runs)]
    gold = {tuple(tp + fn for tp, _, fn in docs) for docs in counted if docs}
    if None in counted or len(gold) != 1:
        return Comparison(difference, welch_p(scores, baseline_scores), "welch")
    counts = np.array(counted)
    return Comparison(difference, bootstrap_p(counts[: len(scores)], counts[len(scores) :], metric), "bootstrap")


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


def _mentions(group: SeedGroup, papers: Iterable[PrintedScores]) -> Iterator[Row]:
    """Yield micro-averaged scores of named and nominal mentions. They are computed from counts, since scores of several
    labels cannot be averaged."""
    for run in group.runs:
        if run.test.counts is None:
            raise UserError(f"{run.folder}: metrics.json has no counts, which groups of labels need", _NO_COUNTS)
    seeds = tuple(run.seed for run in group.runs)
    for kind, suffix in MENTIONS.items():
        counts = [_counts(run, suffix) for run in group.runs]
        yield Row(group.key, kind, seeds=seeds, gold=counts[0].gold, **_percent(count.score for count in counts))
        for row in papers:
            f = getattr(row, kind)
            if f is not None:
                yield Row(group.key, kind, _source(row), f=Summary(f))


def _printed_row(group: SeedGroup, row: PrintedScores) -> Row:
    metrics = {name: getattr(row, name) for name in ("p", "r", "dev_f")}
    summaries: dict[str, Any] = {name: Summary(value) for name, value in metrics.items() if value is not None}
    return Row(group.key, source=_source(row), f=Summary(row.f, row.sd), **summaries)


def _source(row: PrintedScores) -> str:
    return f"{row.model}, {row.source}, {row.condition}"


def _counts(run: Run, suffix: str = "") -> Confusion:
    return total(count for label, count in (run.test.counts or {}).items() if label.endswith(suffix))


def _gold(run: Run) -> int | None:
    return None if run.test.counts is None else _counts(run).gold


def _percent(scores: Iterable[Score]) -> dict[str, Any]:
    values = list(scores)
    return {metric: summarize([100 * getattr(score, metric) for score in values]) for metric in METRICS}


def _different_data(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a warning if the runs of a corpus have different numbers of gold entities, and so were scored on different
    data."""
    first: dict[str, tuple[Run, int]] = {}
    for run in runs:
        gold = _gold(run)
        if gold is None:
            continue
        first_run, expected = first.setdefault(run.corpus, (run, gold))
        if gold != expected:
            yield f"{run.name} was scored on {gold} entities, {first_run.name} on {expected}: not the same test data"


@cache
def all_printed() -> tuple[PrintedScores, ...]:
    """Return all published results."""
    with Path(__file__).with_name("published.csv").open(encoding="utf8", newline="") as lines:
        header, *rows = csv.reader(lines)
    scores = [{name: float(cell) for name, cell in zip(header[5:], row[5:], strict=True) if cell} for row in rows]
    return tuple(PrintedScores(*row[:5], **fields) for row, fields in zip(rows, scores, strict=True))  # type: ignore[arg-type]


def printed_scores(corpus: str, system: str) -> list[PrintedScores]:
    """Return the published results for a corpus and a system."""
    wanted = (_plain(corpus), parts_of(_plain(system)))
    return [row for row in all_printed() if (row.corpus, parts_of(row.system)) == wanted]


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-")
