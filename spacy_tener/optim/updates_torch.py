"""Lazy updates of embedding tables by an optimizer.

A table may have hundreds of thousands of rows and a batch uses a few hundred, so the time of a step must not depend
on the table's height. `spacy_tener.SGD.v1` can update rows. For Thinc's own optimizers, which cannot, the rows and
their momentum are gathered, updated as a small parameter of their own, and written back (lazy Adam).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

from thinc.api import get_array_module, torch2xp, xp2torch
from torch import Tensor

Key = tuple[int, str]


def apply_row_gradient(optimizer: Any, key: Key, table: Tensor, gradient: Tensor) -> None:
    """Update a table in place.

    table (Tensor): The rows. *Shape:* (rows, width)
    gradient (Tensor): Its gradient, sparse and coalesced. *Shape:* (rows, width)
    """
    if not hasattr(optimizer, "mom1"):
        # `nlp.rehearse` passes a function that notes whole parameters with their gradients, for a step taken later.
        # The height is part of the name, since a table may grow between such steps.
        optimizer((key[0], f"{key[1]}[{len(table)}]"), torch2xp(table), torch2xp(gradient.to_dense()))
        return
    rows = gradient.indices()[0]
    weights, d_weights = cast(Any, torch2xp(table[rows])), cast(Any, torch2xp(gradient.values()))
    if hasattr(optimizer, "update_rows"):
        optimizer.update_rows(key, weights, d_weights)
    else:
        with _rows_alone(optimizer, key, table, torch2xp(rows)):
            weights, _ = optimizer(key, weights, d_weights)
    table[rows] = xp2torch(weights, device=table.device)


@contextlib.contextmanager
def _rows_alone(optimizer: Any, key: Key, table: Tensor, rows: Any) -> Iterator[None]:
    """Give the optimizer, under `key`, the momentum of the rows only; keep that of the table under another key."""
    height, width = table.shape
    of_table = (key[0], f"{key[1]}.whole")  # the key of the table's momentum
    # Parameter averages have the shape of the whole table, which every step would have to read. They are not needed:
    # TENER on Weibo's dev part after 5 epochs, two seeds, had F1 52.1 and 54.0 with averages of all but rows, 51.7 and
    # 52.4 with those of rows too, 52.7 and 51.4 with none.
    averages, optimizer.averages = optimizer.averages, None
    try:
        for moments in (optimizer.mom1, optimizer.mom2):
            moments.pop(key, None)
            if of_table in moments:
                if missing := height - len(moments[of_table]):
                    # New rows of a table start with zero momentum.
                    pad = get_array_module(moments[of_table]).pad
                    moments[of_table] = pad(moments[of_table], ((0, missing), (0, 0)))
                moments[key] = moments[of_table][rows].ravel()
        yield
        for moments in (optimizer.mom1, optimizer.mom2):
            of_rows = moments.pop(key, None)
            if of_rows is not None:
                if of_table not in moments:
                    moments[of_table] = get_array_module(of_rows).zeros((height, width), dtype=of_rows.dtype)
                moments[of_table][rows] = of_rows.reshape(-1, width)
    finally:
        optimizer.averages = averages
