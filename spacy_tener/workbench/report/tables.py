"""A report as text: for the terminal, as Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, Literal

from wasabi.tables import table as terminal_table

from .errors import ReportError
from .rows import Report, Row
from .runs import Unfinished
from .scores import METRICS
from .statistics import PairedTest, Summary

NOTE = (
    "Mean ± standard deviation over seeds, in percent, on test; precision (P), recall (R) and F1 over entities with "
    "their spans and labels. The checkpoint is the best on dev."
)
NOTE_PRINTED = "Rows in brackets are not from these runs."
NOTE_MENTIONS = "Micro-averaged over all labels of a kind, from counts."
_EMPTY = ""
# The fields of a row in the order of a table's columns.
_FIELDS = ("label", "source", "seeds", "gold", "p", "r", "f", "dev_f", "speed", "megabytes")
# A cell for each row of a section, under a header.
Column = tuple[str, Callable[[Row], str]]
Section = tuple[str, list[list[str]]]


def to_terminal(report: Report) -> str:
    """Aligned columns."""
    parts = []
    for title, (header, *rows) in _sections(report):
        aligns = [_align(name, report) for name in header]
        longest = max(len(cell) for row in rows for cell in row)
        parts.append(f"{title}\n{terminal_table(rows, header, divider=True, aligns=aligns, max_col=longest)}")
    return "\n".join([*parts, *_notes(report)]) + "\n"


def _align(name: str, report: Report) -> Literal["l", "r"]:
    return "l" if name in report.options.by else "r"


def to_markdown(report: Report) -> str:
    """A section for each table, without a heading over all, so that it fits under one."""
    parts = []
    for title, (header, *rows) in _sections(report):
        lines = [header, ["---"] * len(header), *rows]
        parts += [f"## {title}", "\n".join("| " + " | ".join(map(_escaped, line)) + " |" for line in lines)]
    parts += _notes(report)
    if report.unfinished:
        parts += ["## Unfinished runs", "\n".join(f"- {_unfinished(each)}" for each in report.unfinished)]
    return "\n\n".join([*parts, *(f"Warning: {warning}." for warning in report.warnings)]) + "\n"


def to_csv(report: Report) -> str:
    """One table of everything, told apart by its first column, with all digits."""
    records = [{"kind": kind, **_flat(record)} for kind, record in _records(report)]
    output = io.StringIO()
    writer = csv.DictWriter(output, list(dict.fromkeys(name for record in records for name in record)), restval=_EMPTY)
    writer.writeheader()
    writer.writerows(records)
    return output.getvalue()


def to_json(report: Report) -> str:
    """Everything, with all digits."""
    data: dict[str, Any] = {name: getattr(report.options, name) for name in ("by", "metric", "baseline")}
    data |= {kind: [] for kind in ("overall", "labels", "mentions", "unfinished")}
    for kind, record in _records(report):
        data[kind].append(record)
    return json.dumps({**data, "warnings": report.warnings}, ensure_ascii=False, indent=2) + "\n"


FORMATS = {"terminal": to_terminal, "md": to_markdown, "csv": to_csv, "json": to_json}


def render(report: Report, format: str) -> str:
    if format not in FORMATS:
        raise ReportError(f"Unknown format '{format}'", f"Use one of: {', '.join(FORMATS)}.")
    return FORMATS[format](report)


def _sections(report: Report) -> Iterator[Section]:
    by = [_key_column(report, place) for place in range(len(report.options.by))]
    seeds: Column = ("seeds", lambda row: str(len(row.seeds) or _EMPTY))
    scores: list[Column] = [
        ("entities", lambda row: _EMPTY if row.gold is None else str(row.gold)),
        ("P", lambda row: _mean_sd(row.p)),
        ("R", lambda row: _mean_sd(row.r)),
        ("F1", lambda row: _mean_sd(row.f)),
    ]
    label: Column = ("label", lambda row: row.label)
    kind: Column = ("mentions", lambda row: row.label)
    yield from _section("Test scores", [*by, seeds, *scores, *_costs(), *_comparison(report)], report.overall)
    yield from _section("Test scores by label", [*by, label, seeds, *scores], report.labels)
    yield from _section("Named and nominal entities", [*by, kind, seeds, *scores], report.mentions)


def _section(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Iterator[Section]:
    """Nothing where there are no rows. Columns without a single entry are left out."""
    cells = [[cell(row) for row in rows] for _, cell in columns]
    filled = [(name, column) for (name, _), column in zip(columns, cells, strict=True) if any(column)]
    if rows:
        header = [name for name, _ in filled]
        yield title, [header, *(list(line) for line in zip(*(column for _, column in filled), strict=True))]


def _key_column(report: Report, place: int) -> Column:
    name = report.options.by[place]

    def cell(row: Row) -> str:
        return f"({row.source})" if row.source and name == "system" else str(row.key[place])

    return name, cell


def _costs() -> list[Column]:
    return [
        ("dev F1", lambda row: _mean_sd(row.dev_f)),
        ("words/s", lambda row: _mean_sd(row.speed, 0)),
        ("MB", lambda row: _EMPTY if row.megabytes is None else f"{row.megabytes.mean:.1f}"),
    ]


def _comparison(report: Report) -> list[Column]:
    name = METRICS[report.options.metric]
    return [
        (f"{name} - {report.options.baseline}", lambda row: f"{row.versus.difference:+.2f}" if row.versus else _EMPTY),
        ("common seeds", lambda row: str(row.versus.n) if row.versus else _EMPTY),
        ("p", lambda row: _probability(row.versus)),
    ]


def _mean_sd(summary: Summary | None, digits: int = 2) -> str:
    if summary is None:
        return _EMPTY
    deviation = "" if summary.sd is None else f" ± {summary.sd:.{digits}f}"
    return f"{summary.mean:.{digits}f}{deviation}"


def _probability(test: PairedTest | None) -> str:
    if test is None or test.p is None:
        return _EMPTY
    return f"{test.p:.4f}" if test.p >= 0.0001 else "<0.0001"


def _notes(report: Report) -> list[str]:
    notes = [NOTE] if report.overall else []
    if any(row.source for row in (*report.overall, *report.mentions)):
        notes.append(NOTE_PRINTED)
    if report.mentions:
        notes.append(NOTE_MENTIONS)
    if report.options.baseline is not None:
        notes.append(
            "p: two-sided paired t-test over the seeds that a system has in common with "
            f"{report.options.baseline}, not corrected for the number of comparisons."
        )
    return [" ".join(notes)] if notes else []


def _unfinished(each: Unfinished) -> str:
    return f"{each.name}: {each.reason}"


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|")


def _records(report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row by its kind, and the unfinished runs."""
    kinds: dict[str, Iterable[Row]] = {"overall": report.overall, "labels": report.labels, "mentions": report.mentions}
    for kind, rows in kinds.items():
        for row in rows:
            fields = asdict(row)
            key = dict(zip(report.options.by, row.key, strict=True))
            yield kind, {**key, **{name: fields[name] for name in _FIELDS}, "versus": _finite(row.versus)}
    for each in report.unfinished:
        place = {"corpus": each.corpus, "system": each.system, "seeds": [each.seed]}
        yield "unfinished", {**place, "reason": each.reason}


def _finite(test: PairedTest | None) -> dict[str, Any] | None:
    """JSON has no infinity."""
    if test is None:
        return None
    return {name: None if value is not None and math.isinf(value) else value for name, value in asdict(test).items()}


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """A record with one value to a cell: f_mean, f_sd, ..."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{part}": each for part, each in value.items()}
        elif isinstance(value, list | tuple):
            flat[name] = " ".join(map(str, value))
        else:
            flat[name] = value
    return {name: value for name, value in flat.items() if value is not None}
