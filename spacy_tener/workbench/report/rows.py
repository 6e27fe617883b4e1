"""The rows of a report: what each group of runs reached, beside what the papers printed for the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .errors import ReportError
from .groups import DEFAULT_BY, Group, group_runs
from .published import Printed, published
from .runs import Found, Run, Unfinished
from .scores import Counts, Score, check_metric, total
from .statistics import PairedTest, Summary, paired_t_test, summarize

NAMED, NOMINAL = "named", "nominal"
_SUFFIXES = {NAMED: ".NAM", NOMINAL: ".NOM"}
_NO_COUNTS = "Write it with `python -m spacy tener evaluate`, which counts; `spacy evaluate` does not."


@dataclass(frozen=True)
class Options:
    """What to report.

    by: What runs must share to be taken together over their seeds: corpus, system, settings of the config.
    metric: The score to compare systems by: p, r or f.
    baseline: The system that the others are compared with.
    per_label: Whether to give a row to each label as well.
    named_nominal: Whether to give rows to names (X.NAM) and nominal mentions (X.NOM) as well.
    published: Whether to set printed rows beside ours.
    """

    by: tuple[str, ...] = DEFAULT_BY
    metric: str = "f"
    baseline: str | None = None
    per_label: bool = False
    named_nominal: bool = False
    published: bool = True


@dataclass(frozen=True)
class Row:
    """One line of a report. Scores are in percent.

    key: The values of what the runs are grouped by.
    label: The label, or `named` or `nominal`, or nothing where all are taken together.
    source: Where the numbers are from if not from these runs.
    seeds: The seeds that have such scores.
    gold: How many such entities the test part has.
    """

    key: tuple[Any, ...]
    f: Summary
    p: Summary | None = None
    r: Summary | None = None
    label: str = ""
    source: str = ""
    seeds: tuple[int, ...] = ()
    gold: int | None = None
    dev_f: Summary | None = None
    speed: Summary | None = None
    megabytes: Summary | None = None
    versus: PairedTest | None = None


@dataclass(frozen=True)
class Report:
    """All rows, and what there are none of.

    warnings: What a reader of the rows must know.
    """

    options: Options
    overall: tuple[Row, ...]
    labels: tuple[Row, ...]
    mentions: tuple[Row, ...]
    unfinished: tuple[Unfinished, ...]
    warnings: tuple[str, ...]


def make_report(found: Found, options: Options) -> Report:
    check_metric(options.metric)
    groups = group_runs(found.runs, options.by)
    _check_options(groups, found, options)
    return Report(
        options=options,
        overall=tuple(row for group in groups for row in _overall(group, groups, options)),
        labels=tuple(row for group in groups for row in _labels(group)) if options.per_label else (),
        mentions=_mentions(groups, options) if options.named_nominal else (),
        unfinished=found.unfinished,
        warnings=tuple(_different_data(found.runs)),
    )


def _check_options(groups: Sequence[Group], found: Found, options: Options) -> None:
    if options.baseline is None:
        return
    if "system" not in options.by:
        raise ReportError("Runs that are not grouped by system have no baseline", "Group by system, too.")
    systems = sorted({group.value("system") for group in groups})
    if options.baseline not in systems:
        unfinished = any(each.system == options.baseline for each in found.unfinished)
        state = "has no finished run" if unfinished else "is none of these systems"
        raise ReportError(f"The baseline {options.baseline} {state}", f"Finished: {', '.join(systems) or 'none'}.")


def _overall(group: Group, groups: Sequence[Group], options: Options) -> Iterator[Row]:
    yield Row(
        key=group.key,
        seeds=tuple(run.seed for run in group.runs),
        **_percent([run.test.overall for run in group.runs]),
        gold=_gold(group.runs[0], lambda label: True),
        dev_f=group.summary(lambda run: 100 * run.dev.overall.f if run.dev else None),
        speed=group.summary(lambda run: run.test.speed),
        megabytes=group.summary(lambda run: run.megabytes),
        versus=_versus(group, groups, options),
    )
    if options.published:
        for row in _printed(group):
            yield _printed_row(group, row, {"p": row.p, "r": row.r, "f": row.f}, sd=row.sd, dev_f=row.dev_f)


def _versus(group: Group, groups: Sequence[Group], options: Options) -> PairedTest | None:
    """This group against the one that differs from it in its system only."""
    if options.baseline is None or group.value("system") == options.baseline:
        return None
    place = options.by.index("system")
    wanted = (*group.key[:place], options.baseline, *group.key[place + 1 :])
    for other in groups:
        if other.key == wanted:
            return paired_t_test(_percents(group.scores(options.metric)), _percents(other.scores(options.metric)))
    return None


def _labels(group: Group) -> Iterator[Row]:
    for label in sorted({label for run in group.runs for label in run.test.labels}):
        having = [run for run in group.runs if label in run.test.labels]
        yield Row(
            key=group.key,
            label=label,
            seeds=tuple(run.seed for run in having),
            **_percent([run.test.labels[label] for run in having]),
            gold=_gold(having[0], label.__eq__),
        )


def _mentions(groups: Sequence[Group], options: Options) -> tuple[Row, ...]:
    with_mentions = [group for group in groups if any(map(_is_mention, group.runs[0].test.labels))]
    if not with_mentions:
        raise ReportError("No run has labels that end in .NAM or .NOM", "Leave out --named-nominal.")
    return tuple(row for group in with_mentions for kind in _SUFFIXES for row in _of_kind(group, kind, options))


def _of_kind(group: Group, kind: str, options: Options) -> Iterator[Row]:
    """The micro-averaged scores of all labels of one kind: from counts, since scores cannot be put together."""

    def wanted(label: str) -> bool:
        return label.endswith(_SUFFIXES[kind])

    counts = [total(count for label, count in _counts(run).items() if wanted(label)) for run in group.runs]
    seeds = tuple(run.seed for run in group.runs)
    yield Row(key=group.key, label=kind, seeds=seeds, **_percent([c.score for c in counts]), gold=counts[0].gold)
    if options.published:
        for row in _printed(group):
            f = row.named if kind == NAMED else row.nominal
            if f is not None:
                yield _printed_row(group, row, {"f": f}, label=kind)


def _is_mention(label: str) -> bool:
    return label.endswith(tuple(_SUFFIXES.values()))


def _counts(run: Run) -> Mapping[str, Counts]:
    if run.test.counts is None:
        raise ReportError(f"{run.folder}: metrics.json has no counts to take labels together by", _NO_COUNTS)
    return run.test.counts


def _gold(run: Run, wanted: Callable[[str], bool]) -> int | None:
    if run.test.counts is None:
        return None
    return total(count for label, count in run.test.counts.items() if wanted(label)).gold


def _printed(group: Group) -> Iterable[Printed]:
    """Printed rows are of a corpus and a system: where runs are apart by anything else, or by less, there are none."""
    if sorted(group.by) != sorted(DEFAULT_BY):
        return []
    return published(group.value("corpus"), group.value("system"))


def _printed_row(
    group: Group,
    row: Printed,
    scores: Mapping[str, float | None],
    *,
    label: str = "",
    sd: float | None = None,
    dev_f: float | None = None,
) -> Row:
    summaries: dict[str, Any] = {name: Summary(score) for name, score in scores.items() if score is not None}
    return Row(
        key=group.key,
        label=label,
        source=f"{row.model}, {row.source}, {row.condition}",
        dev_f=None if dev_f is None else Summary(dev_f),
        **{**summaries, "f": Summary(summaries["f"].mean, sd)},
    )


def _percent(scores: Sequence[Score]) -> dict[str, Any]:
    return {metric: summarize([100 * getattr(score, metric) for score in scores]) for metric in ("p", "r", "f")}


def _percents(scores: Mapping[int, float]) -> dict[int, float]:
    return {seed: 100 * score for seed, score in scores.items()}


def _different_data(runs: Sequence[Run]) -> Iterator[str]:
    """Runs of one corpus with unequal numbers of gold entities were not scored on the same data."""
    first: dict[str, tuple[Run, int]] = {}
    for run in runs:
        gold = _gold(run, lambda label: True)
        if gold is None:
            continue
        other, expected = first.setdefault(run.corpus, (run, gold))
        if gold != expected:
            yield f"{run.name} was scored on {gold} entities, {other.name} on {expected}: not the same test data"
