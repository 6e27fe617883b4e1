"""Rows that the papers printed for the same corpora, and what their released code reached on one CPU core.

They stand in published.csv. Scores are in percent, as printed. A system is named by the overlays of configs/models that
make it, joined by `+`. What a paper calls its baseline, or takes over from another paper, stands under what it is.
FLAT-ATSSA was printed with BERT only: its rows stand under its name with and without BERT, and say so.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

# What every English config starts from, so that naming it changes nothing.
_DEFAULTS = frozenset({"chars-adapted", "encoder-adapted"})


@dataclass(frozen=True)
class Printed:
    """One row of one table for one corpus.

    model: What the paper calls it.
    condition: With what the model started.
    named, nominal: The F1 of Weibo's names and nominal mentions taken by themselves.
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
        """Who measured it, and with what the model started."""
        return f"{'released code' if self.source == 'released code' else 'printed'}: {self.condition}"


@cache
def all_printed() -> tuple[Printed, ...]:
    with Path(__file__).with_name("published.csv").open(encoding="utf8", newline="") as lines:
        header, *rows = csv.reader(lines)
    scores = [{name: float(cell) for name, cell in zip(header[5:], row[5:], strict=True) if cell} for row in rows]
    return tuple(Printed(*row[:5], **each) for row, each in zip(rows, scores, strict=True))  # type: ignore[arg-type]


def published(corpus: str, system: str) -> list[Printed]:
    """The rows for a corpus and a system by the names that their runs have."""
    wanted = (_plain(corpus), _canonical(system))
    return [row for row in all_printed() if (row.corpus, _canonical(row.system)) == wanted]


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-").replace(" ", "-")


def _canonical(system: str) -> frozenset[str]:
    """The overlays of a system. Their order is of no matter, and those that change nothing do not count; nor does
    `mect` beside its own ablation `mect-no-cross`."""
    parts = frozenset(_plain(system).split("+"))
    extended = {part for part in parts if any(other.startswith(f"{part}-") for other in parts)}
    return (parts - extended - _DEFAULTS) or frozenset({"tener"})
