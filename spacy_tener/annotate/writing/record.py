"""What an output was made of, and which of its parts are done."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from typing import Any

from ...errors import RemedyError
from .folders import Folder

# Readers of directories, as those of Arrow and Spark, leave out names that begin like this.
MADE_OF, DONE = "_annotate.json", "_parts.json"
_SHARE = 20  # times as long as writing the list of parts took, that it is not written again


@dataclass
class Counts:
    """What is in some annotated records."""

    texts: int = 0
    characters: int = 0
    entities: int = 0
    errors: int = 0

    def add(self, other: Counts) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


class Record:
    """The parts of an output that are done, kept beside them.

    A part is done where its file is there and it is listed here. One that was written and not listed, because the
    process was killed between, is made again, the same.
    """

    def __init__(self, folder: Folder, ending: str, made_of: dict[str, Any]) -> None:
        self._folder, self._ending = folder, ending
        self._check(made_of)
        there = folder.names()
        listed: dict[str, list[int]] = json.loads(folder.read(DONE) or b"{}")
        self.done = {int(number): Counts(*counts) for number, counts in listed.items()}
        self.done = {number: counts for number, counts in self.done.items() if self.name(number) in there}
        self._not_before = 0.0

    def name(self, number: int) -> str:
        return f"part-{number:05}.{self._ending}"

    def add(self, number: int, counts: Counts) -> None:
        """List a part that was written."""
        self.done[number] = counts
        if time.monotonic() >= self._not_before:
            self.keep()

    def keep(self) -> None:
        """Write the list."""
        start = time.monotonic()
        listed = {number: list(asdict(counts).values()) for number, counts in sorted(self.done.items())}
        self._folder.write(DONE, json.dumps(listed).encode())
        self._not_before = time.monotonic() + _SHARE * (time.monotonic() - start)

    def _check(self, made_of: dict[str, Any]) -> None:
        """Refuse to go on with what was made of something else."""
        content = self._folder.read(MADE_OF)
        if content is None:
            if other := sorted(self._folder.names()):
                remedy = "Name a directory that is new or empty, or one that `spacy tener annotate` was writing."
                raise RemedyError(f"The output holds other files ({', '.join(other[:3])})", remedy)
            self._folder.write(MADE_OF, (json.dumps(made_of, ensure_ascii=True, indent=1) + "\n").encode())
            return
        before = json.loads(content)
        changed = [_change(name, before.get(name), now) for name, now in made_of.items() if before.get(name) != now]
        if changed:
            remedy = "Name another output, or remove this one to annotate everything anew."
            raise RemedyError(f"The output was made of something else: {'; '.join(changed)}", remedy)


def _change(name: str, before: Any, now: Any) -> str:
    if not isinstance(now, list) or not isinstance(before, list):
        return f"{name} was {before} and is {now}"
    differ = [str((one or other)[0]) for one, other in _pairs(before, now) if one != other]
    return f"{name} differ: {', '.join(differ[:3])}{' ...' if len(differ) > 3 else ''}"


def _pairs(before: list[Any], now: list[Any]) -> list[tuple[Any, Any]]:
    by_name, by_name_now = ({each[0]: each for each in files} for files in (before, now))
    pairs = [(by_name.get(name), by_name_now.get(name)) for name in {**by_name, **by_name_now}]
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    return changed or list(zip(before, now, strict=False))  # the same files in another order
