"""Texts in batches of like length, and an answer for each though some fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..pipeline.windows import SizedT, batch_by_size

Task = Callable[[Sequence[str]], Sequence[Any]]
"""Reads texts: an answer for each."""

TOGETHER = 4_096
"""Characters that are read in one batch, of texts of like length."""


def alike(items: Iterable[SizedT]) -> Iterator[list[SizedT]]:
    """Yield batches of like length, the shortest first, so that no short text waits for a long one."""
    return batch_by_size(sorted(items, key=len), TOGETHER)


def answer_each(task: Task, texts: Sequence[str]) -> list[Any]:
    """Return the answer for each text, or the exception that it raises. Texts that fail together are halved."""
    if not texts:
        return []
    try:
        answers = list(task(texts))
        if len(answers) != len(texts):
            raise ValueError(f"{len(answers)} answers for {len(texts)} texts")
        return answers
    except Exception as error:
        if len(texts) == 1:
            return [error]
        middle = len(texts) // 2
        return answer_each(task, texts[:middle]) + answer_each(task, texts[middle:])
