"""Updates of embedding tables: only the rows that a batch used are read or written.

A table may have hundreds of thousands of rows and a batch uses a few hundred, so the time of a step must not depend
on the table's height. `spacy_tener.SGD.v1` knows how to update rows. Thinc's own optimizers do not; for them the rows,
and the rows of their momentum, are gathered, updated as a small parameter of their own, and put back: what the
literature calls lazy Adam.
"""

from __future__ import annotations

from typing import Any, cast

from thinc.api import Optimizer, get_array_module, torch2xp, xp2torch
from torch import Tensor

Key = tuple[int, str]


def apply_row_gradient(optimizer: Optimizer, key: Key, table: Tensor, gradient: Tensor) -> None:
    """Update a table in place.

    *Shape* table: [rows, width]; gradient: the same, sparse and coalesced
    """
    rows = gradient.indices()[0]
    if hasattr(optimizer, "update_rows"):
        optimizer.update_rows(key, torch2xp(table), torch2xp(rows), torch2xp(gradient.values()))
        return
    state = _RowState(optimizer, key, table)
    state.gather(torch2xp(rows))
    # Running averages have the shape of the whole table: rows cannot take part in them.
    averages, optimizer.averages = optimizer.averages, None
    used, d_used = cast(Any, torch2xp(table[rows])), cast(Any, torch2xp(gradient.values()))
    updated, _ = optimizer(state.key, used, d_used)
    optimizer.averages = averages
    table[rows] = xp2torch(updated, device=table.device)
    state.scatter(torch2xp(rows))


class _RowState:
    """The momentum of a table's rows, kept whole between steps and lent to the optimizer row by row."""

    def __init__(self, optimizer: Optimizer, key: Key, table: Tensor) -> None:
        self.optimizer = optimizer
        # The height is part of the key: momentum starts anew when a table has grown.
        self.key = (key[0], f"{key[1]}[{len(table)}]")
        self._whole = (key[0], f"{self.key[1]}.whole")
        self._shape = (len(table), table.shape[1])

    def gather(self, rows: Any) -> None:
        for moments in (self.optimizer.mom1, self.optimizer.mom2):
            if self._whole in moments:
                moments[self.key] = cast(Any, moments[self._whole])[rows].ravel()
            else:
                moments.pop(self.key, None)

    def scatter(self, rows: Any) -> None:
        for moments in (self.optimizer.mom1, self.optimizer.mom2):
            used = cast(Any, moments.pop(self.key, None))
            if used is None:
                continue
            if self._whole not in moments:
                moments[self._whole] = get_array_module(used).zeros(self._shape, dtype=used.dtype)
            cast(Any, moments[self._whole])[rows] = used.reshape(-1, self._shape[1])
