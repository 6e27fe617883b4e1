"""Batches of texts of similar length, and an answer for each text, even where the pipeline fails at others."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..pipeline.windows import SizedT, batch_by_size

Task = Callable[[Sequence[str]], Sequence[Any]]
"""A function that returns one answer for each text."""

TOGETHER = 4_096
"""Most characters of a batch; a longer text is a batch of its own."""


def batch_by_length(items: Iterable[SizedT]) -> Iterator[list[SizedT]]:
    """Yield batches of items of similar length, the shortest first, so that no short text waits for a long one."""
    return batch_by_size(sorted(items, key=len), TOGETHER)


def answer_each(task: Task, texts: Sequence[str]) -> list[Any]:
    """Return the answer for each text, or the exception that it raises. A batch that fails is halved and retried."""
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
