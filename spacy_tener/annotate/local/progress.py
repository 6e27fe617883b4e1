"""How far a job is: rate, time left, and counts of entities and errors."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ..reading.parts import Part
from ..writing.record import Counts

_EVERY = 60.0  # seconds between lines where there is no terminal for a bar
_FORM = "{percentage:3.0f}% {bar} {elapsed}<{remaining} {postfix}"


class Progress:
    """Told of each part that is written, it shows a bar on a terminal, and a line every minute elsewhere.

    size: Bytes of the input, of which parts have their share. Time left is judged by them.
    say: What prints a line.
    """

    def __init__(self, size: int, say: Callable[[str], object]) -> None:
        self._bar: Any = tqdm(total=size, bar_format=_FORM, leave=False, smoothing=0.0, disable=None)
        self._say = say
        self._before, self._new = Counts(), Counts()
        self._start = self._said = time.monotonic()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: Any) -> None:
        self._bar.close()

    def __call__(self, part: Part, counts: Counts, before: bool) -> None:
        (self._before if before else self._new).add(counts)
        if self._bar.disable:
            if time.monotonic() - self._said > _EVERY:
                self._said = time.monotonic()
                self._say(self.said(self.total))
            return
        step = max(0, part.position - self._bar.n)
        if before:
            self._bar.initial += step  # so that the rate is that of this call
        self._bar.set_postfix_str(self.said(self.total), refresh=False)
        self._bar.update(step)

    @property
    def total(self) -> Counts:
        total = Counts()
        total.add(self._before)
        total.add(self._new)
        return total

    @property
    def rate(self) -> float:
        """Characters a second, of what this call annotates."""
        return self._new.characters / max(1e-9, time.monotonic() - self._start)

    def said(self, total: Counts) -> str:
        """One line about annotated texts."""
        line = f"{total.texts:,} texts, {total.entities:,} entities, {total.errors:,} errors"
        made = f" ({self._before.texts:,} texts were there before)" if self._before.texts else ""
        return f"{line}{made}, {self.rate:,.0f} characters/s" if self._new.texts else f"{line}{made}"
