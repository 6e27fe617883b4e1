"""Teaching a model something made up, to see that it can learn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from thinc.api import Adam


def losses_of_steps(model, docs, n_steps: int, within: Callable = np.asarray) -> list[float]:
    """The losses while the model is taught one random vector per token.

    within: brings random numbers to the range of what the model can say.
    """
    rng = np.random.default_rng(0)
    wanted = [within(rng.normal(size=(len(doc), model.get_dim("nO")))).astype("f") for doc in docs]
    optimizer, losses = Adam(0.01), []
    for _ in range(n_steps):
        Y, backprop = model.begin_update(docs)
        d_outputs = [y - target for y, target in zip(Y, wanted, strict=True)]
        losses.append(sum(float((d**2).sum()) for d in d_outputs))
        backprop(d_outputs)
        model.finish_update(optimizer)
    return losses
