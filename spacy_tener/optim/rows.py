"""Updates of embedding tables: only the rows that a batch used are read or written.

A table may have hundreds of thousands of rows and a batch uses a few hundred, so the time of a step must not depend
on the table's height. `spacy_tener.SGD.v1` knows how to update rows. Thinc's own optimizers do not; for them the rows,
and the rows of their momentum, are gathered, updated as a small parameter of their own, and put back: what the
literature calls lazy Adam.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from thinc.api import Optimizer, get_array_module, torch2xp, xp2torch
from torch import Tensor

Key = tuple[int, str]


def apply_row_gradient(optimizer: Optimizer, key: Key, table: Tensor, gradient: Tensor) -> None:
    """Update a table in place.

    *Shape* table: [rows, width]; gradient: the same, sparse and coalesced
    """
    if not hasattr(optimizer, "mom1"):
        # `nlp.rehearse` passes a function that notes whole parameters with their gradients, for a step taken later.
        # The height is part of the name, since a table may grow between such steps.
        optimizer((key[0], f"{key[1]}[{len(table)}]"), *_whole(table, gradient))
        return
    rows = gradient.indices()[0]
    used, d_used = cast(Any, torch2xp(table[rows])), cast(Any, torch2xp(gradient.values()))
    if hasattr(optimizer, "update_rows"):
        optimizer.update_rows(key, used, d_used)
    else:
        with _rows_alone(optimizer, key, table, rows):
            used, _ = optimizer(key, used, d_used)
    table[rows] = xp2torch(used, device=table.device)


def _whole(table: Tensor, gradient: Tensor) -> tuple[Any, Any]:
    return torch2xp(table), torch2xp(gradient.to_dense())


@contextlib.contextmanager
def _rows_alone(optimizer: Optimizer, key: Key, table: Tensor, rows: Tensor) -> Iterator[None]:
    """Inside, the optimizer has for `key` the momentum of the rows alone, and keeps no averages."""
    state = _RowState(optimizer, key, table)
    # Running averages have the shape of the whole table, so that a step would have to read all of it. Nor are they
    # missed: TENER on Weibo's dev part after 5 epochs, two seeds, had F1 52.1 and 54.0 with averages of all but rows,
    # 51.7 and 52.4 with those of rows too, 52.7 and 51.4 with none.
    averages, optimizer.averages = optimizer.averages, None
    try:
        state.gather(torch2xp(rows))
        yield
        state.scatter(torch2xp(rows))
    finally:
        optimizer.averages = averages


class _RowState:
    """The momentum of a table's rows, kept whole between steps and lent to the optimizer row by row."""

    def __init__(self, optimizer: Optimizer, key: Key, table: Tensor) -> None:
        self._moments: tuple[dict[Key, Any], ...] = (optimizer.mom1, optimizer.mom2)
        self._key = key
        self._whole = (key[0], f"{key[1]}.whole")
        self._height, self._width = table.shape

    def gather(self, rows: Any) -> None:
        for moments in self._moments:
            moments.pop(self._key, None)
            if self._whole in moments:
                moments[self._whole] = self._heightened(moments[self._whole])
                moments[self._key] = moments[self._whole][rows].ravel()

    def scatter(self, rows: Any) -> None:
        for moments in self._moments:
            used = moments.pop(self._key, None)
            if used is None:
                continue
            if self._whole not in moments:
                moments[self._whole] = get_array_module(used).zeros((self._height, self._width), dtype=used.dtype)
            moments[self._whole][rows] = used.reshape(-1, self._width)

    def _heightened(self, whole: Any) -> Any:
        """Rows that the table has gained start without momentum."""
        missing = self._height - len(whole)
        return get_array_module(whole).pad(whole, ((0, missing), (0, 0))) if missing else whole
