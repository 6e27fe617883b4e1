"""Format a score table for the terminal, as Markdown, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from wasabi.tables import table as terminal_table

from research.scores import METRICS
from spacy_tener.errors import check_choice

from .comparing import RESAMPLES, Summary
from .rows import Row, ScoreTable

NOTE = (
    "Mean ± standard deviation over seeds, in percent, on test; precision (P), recall (R) and F1 over entities with "
    "their spans and labels. The checkpoint is the best on dev."
)
NOTE_PRINTED = "Rows in brackets are not from these runs."
NOTE_MENTIONS = "Micro-averaged over all labels of a kind, from counts."
NOTES_P = {
    "bootstrap": f"a two-sided paired bootstrap over test documents and seeds together ({RESAMPLES:,} resamples)",
    "welch": "Welch's two-sided t-test over seeds",
}
NOTE_WELCH = (
    "Marked * are rows of runs without counts per document, which `spacy tener evaluate` writes: their p is by Welch's "
    "two-sided t-test over seeds."
)
# The header of a column, and a function that returns its cell for a row.
Column = tuple[str, Callable[[Row], str]]


def to_terminal(table: ScoreTable) -> str:
    """Format a table as aligned columns."""
    parts = []
    for title, header, rows in _sections(table):
        longest = max(len(cell) for row in rows for cell in row)
        aligns = ["l" if name in table.by else "r" for name in header]
        parts.append(f"{title}\n{terminal_table(rows, header, divider=True, aligns=aligns, max_col=longest)}")  # type: ignore[arg-type]
    return "\n".join([*parts, *_notes(table)]) + "\n"


def to_markdown(table: ScoreTable) -> str:
    """Format a table as Markdown sections, without a main heading."""
    parts = [f"## {title}\n\n{markdown_table(header, rows)}" for title, header, rows in _sections(table)]
    parts += _notes(table)
    if table.unfinished:
        parts += ["## Unfinished runs", "\n".join(f"- {run.name}: {run.reason}" for run in table.unfinished)]
    return "\n\n".join([*parts, *(f"Warning: {warning}." for warning in table.warnings)]) + "\n"


def to_csv(table: ScoreTable) -> str:
    """Format all rows as one CSV table with unrounded numbers. The first column contains the kind of row."""
    records = [{"kind": kind, **_flat(record)} for kind, record in _records(table)]
    output = io.StringIO()
    writer = csv.DictWriter(output, list(dict.fromkeys(name for record in records for name in record)))
    writer.writeheader()
    writer.writerows(records)
    return output.getvalue()


def to_json(table: ScoreTable) -> str:
    """Format all rows as JSON with unrounded numbers."""
    data: dict[str, Any] = {name: getattr(table, name) for name in ("by", "metric", "baseline")}
    data |= {kind: [] for kind in ("overall", "labels", "mentions", "unfinished")}
    for kind, record in _records(table):
        data[kind].append(record)
    return json.dumps({**data, "warnings": table.warnings}, ensure_ascii=False, indent=2) + "\n"


FORMATS = {"terminal": to_terminal, "md": to_markdown, "csv": to_csv, "json": to_json}


def format_table(table: ScoreTable, format: str) -> str:
    """Format a table as text in one of `FORMATS`."""
    check_choice("format", format, FORMATS)
    return FORMATS[format](table)


def _sections(table: ScoreTable) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yield the title, the header and the rows of each section that is not empty. Empty columns are removed."""
    by = [_key_column(name, place) for place, name in enumerate(table.by)]
    seeds: Column = ("seeds", lambda row: str(len(row.seeds) or ""))
    scores: list[Column] = [
        ("entities", lambda row: "" if row.gold is None else str(row.gold)),
        ("P", lambda row: _mean_sd(row.p)),
        ("R", lambda row: _mean_sd(row.r)),
        ("F1", lambda row: _mean_sd(row.f)),
    ]
    costs: list[Column] = [
        ("dev F1", lambda row: _mean_sd(row.dev_f)),
        ("tokens/s", lambda row: _mean_sd(row.speed, 0)),
        ("MB", lambda row: "" if row.megabytes is None else f"{row.megabytes.mean:.1f}"),
        (f"{METRICS[table.metric]} - {table.baseline}", lambda r: f"{r.versus.difference:+.2f}" if r.versus else ""),
        ("p", lambda row: _probability(row, marked=len(_tests(table)) > 1)),
    ]
    label: Column = ("label", lambda row: row.label)
    kind: Column = ("mentions", lambda row: row.label)
    for title, columns, rows in (
        ("Test scores", [*by, seeds, *scores, *costs], table.overall),
        ("Test scores by label", [*by, label, seeds, *scores], table.labels),
        ("Named and nominal entities", [*by, kind, seeds, *scores], table.mentions),
    ):
        filled = {name: cells for name, cell in columns if any(cells := [cell(row) for row in rows])}
        if rows:
            yield title, list(filled), [list(line) for line in zip(*filled.values(), strict=True)]


def _key_column(name: str, place: int) -> Column:
    return name, lambda row: f"({row.source})" if row.source and name == "system" else str(row.key[place])


def _mean_sd(summary: Summary | None, digits: int = 2) -> str:
    if summary is None:
        return ""
    deviation = "" if summary.sd is None else f" ± {summary.sd:.{digits}f}"
    return f"{summary.mean:.{digits}f}{deviation}"


def _probability(row: Row, *, marked: bool) -> str:
    if row.versus is None or row.versus.p is None:
        return ""
    mark = "*" if marked and row.versus.test == "welch" else ""
    return (f"{row.versus.p:.4f}" if row.versus.p >= 0.0001 else "<0.0001") + mark


def _tests(table: ScoreTable) -> set[str]:
    return {row.versus.test for row in table.overall if row.versus and row.versus.p is not None}


def _notes(table: ScoreTable) -> list[str]:
    tests = _tests(table)
    notes = {
        NOTE: table.overall,
        NOTE_PRINTED: any(row.source for row in (*table.overall, *table.mentions)),
        NOTE_MENTIONS: table.mentions,
        f"p: {NOTES_P['bootstrap' if 'bootstrap' in tests else 'welch']}, not corrected for the number of "
        "comparisons.": tests,
        NOTE_WELCH: len(tests) > 1,
    }
    said = [note for note, holds in notes.items() if holds]
    return [" ".join(said)] if said else []


def _records(table: ScoreTable) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each row as a dictionary, and the unfinished runs, with its kind."""
    for kind in ("overall", "labels", "mentions"):
        for row in getattr(table, kind):
            fields = asdict(row)
            yield kind, {**dict(zip(table.by, fields.pop("key"), strict=True)), **fields}
    for run in table.unfinished:
        yield "unfinished", {"corpus": run.corpus, "system": run.system, "seeds": [run.seed], "reason": run.reason}


def _flat(record: dict[str, Any]) -> dict[str, Any]:
    """Flatten a record to one value per cell: f_mean, f_sd, ..."""
    flat: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{name}_{part}": content for part, content in value.items()}
        elif isinstance(value, list | tuple):
            flat[name] = " ".join(map(str, value))
        else:
            flat[name] = value
    return {name: value for name, value in flat.items() if value is not None}


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Format a table as Markdown."""
    lines = []
    for row in [header, ["---"] * len(header), *rows]:
        cells = [" ".join(cell.split()).replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
