"""The trials of a search, as rows of a table and as data."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..composing.search_space import Space

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial

COLUMNS = ("number", "state", "score", "seconds", "again_of", "reason")


@dataclass(frozen=True)
class TrialRow:
    """What is known of a trial.

    state: "done", "failed", "pruned" (others were better at the same step), "interrupted" (the search was killed),
        "running", "waiting".
    score: the best F1 on dev, 0 to 1.
    again_of: the interrupted trial that it does again.
    reason: why it failed.
    values: what the space decided; nothing before it was drawn whole.
    """

    number: int
    state: str
    score: float | None
    seconds: float | None
    again_of: int | None
    reason: str | None
    values: dict[str, Any]

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "pruned")


def rows_of(study: Study, space: Space) -> list[TrialRow]:
    """All trials in their order."""
    return [_row(trial, space) for trial in study.get_trials(deepcopy=False)]


def _row(trial: FrozenTrial, space: Space) -> TrialRow:
    known = trial.user_attrs
    return TrialRow(
        number=trial.number,
        state=_state(trial),
        score=trial.value if trial.state.name == "COMPLETE" else known.get("score"),
        seconds=known.get("seconds"),
        again_of=known.get("again_of"),
        reason=known.get("reason"),
        values=space.values(trial.params) if set(trial.params) == set(space.draws) else {},
    )


def _state(trial: FrozenTrial) -> str:
    if trial.state.name == "FAIL":
        # Whatever failed says why; what was killed could not.
        return "failed" if trial.user_attrs.get("reason") else "interrupted"
    return {"COMPLETE": "done", "PRUNED": "pruned", "RUNNING": "running", "WAITING": "waiting"}[trial.state.name]


def as_csv(rows: Iterable[TrialRow], space: Space) -> str:
    """A line for each trial, with a column for each setting."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*COLUMNS, *space.settings])
    for row in rows:
        values = [row.values.get(name) for name in space.settings]
        writer.writerow([*(getattr(row, name) for name in COLUMNS), *map(_cell, values)])
    return text.getvalue()


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | bool) else value


def as_json(rows: Sequence[TrialRow], best: TrialRow | None, plan: dict[str, Any]) -> str:
    """All trials, the number of the best one, and what was searched."""
    data = {
        "best": None if best is None else best.number,
        "plan": plan,
        "trials": [asdict(row) for row in rows],
    }
    return json.dumps(data, ensure_ascii=False, indent=1) + "\n"
