"""How many of the strings that a model will look up have a vector."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from .strings import WORDS, TextSplitter


@dataclass(frozen=True)
class Coverage:
    """The strings of one kind in one source: how many there are, and which have no vector.

    missing: The strings without a vector, the most frequent first.
    occurrences: How often strings occur in a text, and how many of those have a vector; None for a list of words.
    """

    source: str
    kind: str
    strings: int
    missing: tuple[str, ...]
    occurrences: tuple[int, int] | None = None

    @property
    def covered(self) -> int:
        return self.strings - len(self.missing)

    @property
    def described(self) -> dict[str, str | int]:
        """As the summary of a training has it."""
        described: dict[str, str | int] = {"source": self.source, "strings": self.strings, "covered": self.covered}
        if self.occurrences is not None:
            described["occurrences"], described["occurrences_covered"] = self.occurrences
        return described


def cover_words(source: str, words: Iterable[str], vectors: Collection[str]) -> Coverage:
    """How vectors cover a lexicon: its words of two characters and more."""
    wanted = [word for word in words if len(word) > 1]
    return Coverage(source, WORDS, len(wanted), tuple(word for word in wanted if word not in vectors))


def cover_texts(
    source: str, texts: Iterable[str], split: TextSplitter, vectors: Mapping[str, Collection[str]]
) -> list[Coverage]:
    """How vectors, given by their kind, cover all that is in some texts."""
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in split.kinds}
    for text in texts:
        for kind, strings in split(text).items():
            counts[kind].update(strings)
    coverage: list[Coverage] = []
    for kind, found in counts.items():
        missing = {string: count for string, count in found.most_common() if string not in vectors[kind]}
        covered = found.total() - sum(missing.values())
        coverage.append(Coverage(source, kind, len(found), tuple(missing), (found.total(), covered)))
    return coverage
