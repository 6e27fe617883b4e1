"""Selection of the k-th largest number of each column, by merging halves: in log2(length) steps.

numpy and torch select column by column, number by number; here each step treats all columns at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

Elementwise = Callable[[Any, Any], Any]


def kth_by_merging(x: Any, k: int, minimum: Elementwise, maximum: Elementwise) -> Any:
    """Return the k-th largest number of each column of k or more. Equal numbers count separately.

    *Shape:* (.., keys, queries) to `(.., 1, queries)`. minimum, maximum: elementwise functions of the arrays'
    library.
    """
    best, odd = [x], []
    while (length := best[0].shape[-2]) > 1:
        half = length // 2
        if length % 2:
            odd.append([rank[..., -1:, :] for rank in best])
        first, second = [rank[..., :half, :] for rank in best], [rank[..., half : 2 * half, :] for rank in best]
        best = _merge(first, second, k, minimum, maximum)
    for single in odd:
        best = _merge(best, single, k, minimum, maximum)
    return best[k - 1]


def _merge(a: list[Any], b: list[Any], k: int, minimum: Elementwise, maximum: Elementwise) -> list[Any]:
    """Return the k largest of two lists in descending order: the r-th is the largest `min(a_i, b_r-i)`."""
    merged = []
    for r in range(1, min(k, len(a) + len(b)) + 1):
        lowest = []
        for i in range(max(0, r - len(b)), min(r, len(a)) + 1):
            last = [numbers[-1] for numbers in (a[:i], b[: r - i]) if numbers]
            lowest.append(reduce(minimum, last))
        merged.append(reduce(maximum, lowest))
    return merged
