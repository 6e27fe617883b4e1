from __future__ import annotations

import torch
import torch.nn.functional as F

from spacy_tener.layers.dense import Projection


def test_each_token_is_projected_alone() -> None:
    torch.manual_seed(0)
    layer, x = Projection(width_in=4, width_out=3), torch.randn(5, 4)
    projected = layer(x, [2, 0, 3])
    torch.testing.assert_close(projected, F.linear(x, layer.linear.weight, layer.linear.bias))
    assert layer(x[:0], [0]).shape == (0, 3)
