"""TENER's transformer encoder in torch, for training and for prediction on a GPU.

`TransformerEncoder` is a stack of layers with `AdaptedAttention` (Yan et al., 2019, section 3.2), or with the
`VanillaAttention` that the paper compares (section 2.2). `tener_numpy` has a predictor with the name of each class.

The sequences of a batch are concatenated, without padding: all layers work on rows of the shape (tokens, width).
`Ragged` has the sequence lengths, and pads them for the products of attention only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...nn.attention_torch import Attention, Heads, interleave, sinusoids, split_heads
from ...nn.layers_torch import Linear, TransformerLayer
from ...nn.ragged_torch import Ragged
from ...sequences import Lengths
from .tener_config import TransformerConfig


class VanillaAttention(Attention):
    """Multi-head attention of the vanilla transformer (Vaswani et al., 2017; eq. 1 to 6).

    It is not aware of positions, which the encoder adds to the input. All linear layers have biases, as the numbers of
    parameters in the paper's supplement (6.1) imply. In the released code only the output layer has one.

    width (int): Input and output width d.
    n_heads (int): Number of heads h.
    dropout (float): Attention dropout rate.
    scaled (bool): Divide the scores by `sqrt(d_k)` (eq. 3).
    """

    def __init__(self, *, width: int, n_heads: int, dropout: float = 0.0, scaled: bool = True) -> None:
        super().__init__(n_heads=n_heads, dropout=dropout)
        self.scale = 1.0 / math.sqrt(width // n_heads) if scaled else 1.0
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.out = Linear(width, width)

    def heads(self, x: Tensor, *context: Any) -> Heads:
        query = split_heads(self.query(x), self.n_heads)  # eq. 4
        key = split_heads(self.key(x), self.n_heads)
        value = split_heads(self.value(x), self.n_heads)
        return Heads(query * self.scale, key, value)

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        """Compute attention within each sequence, and project the concatenated heads. *Shape:* (tokens, width)"""
        return self.out(super().forward(x, ragged, *context))  # eq. 6


@dataclass(frozen=True)
class RelativePositions:
    """The sines and cosines of a batch's positions, which `AdaptedAttention` multiplies. All layers share them.

    With `c_i = 10000^(-2i / d_k)` (eq. 17):

    key_table (Tensor): `[.., cos(c_i j), sin(c_i j), ..]` for each position j of a key. *Shape:* (longest, head width)
    query_factors (Tensor): `sin(c_i t) - i cos(c_i t)` for the position t of each token. *Shape:* (tokens, 1, head
        width / 2)
    """

    key_table: Tensor
    query_factors: Tensor

    @classmethod
    def of(cls, ragged: Ragged, head_width: int, like: Tensor) -> RelativePositions:
        """Compute the relative positions of a batch.

        ragged (Ragged): Sequence lengths.
        head_width (int): Width d_k of a head.
        like (Tensor): A tensor with the device and the dtype of the result.
        """
        sin, cos = sinusoids(ragged.longest, head_width, like)
        query_factors = torch.complex(sin, -cos).index_select(0, ragged.positions)
        return cls(interleave(cos, sin), query_factors[:, None])


class AdaptedAttention(Attention):
    """Multi-head attention of TENER (section 3.2): aware of direction and distance, and not scaled.

    The keys are the input itself, split into heads, and no output projection follows. The score of a query at position
    t and a key at position j is (eq. 17, 18)

        A[t, j] = (q_t + u) . k_j + (q_t + v) . r_{t-j}
        r_{t-j} = [.., sin(c_i (t-j)), cos(c_i (t-j)), ..],    c_i = 10000^(-2i / d_k)

    Computed as written, the second term takes an embedding of every distance, and a shift for every query. Instead,
    read each pair (a, b) of `q_t + v` as the complex number `z = a + ib`. Its product with the pair of `r_{t-j}` is

        a sin(c_i (t-j)) + b cos(c_i (t-j)) = Re(z . (sin(c_i t) - i cos(c_i t)) . e^(-i c_i j))
                                            = p_t . [cos(c_i j), sin(c_i j)],    p_t = z . (sin(c_i t) - i cos(c_i t))

    where `p_t` is read as a pair again. So the scores are those of ordinary attention with heads of twice the width,

        A[t, j] = [q_t + u ; p_t] . [k_j ; .., cos(c_i j), sin(c_i j), ..]

    with no array of distances, and as exact in long sequences as in short ones.

    width (int): Input and output width d.
    n_heads (int): Number of heads h. The width of a head, `d_k = width / n_heads`, must be even.
    dropout (float): Attention dropout rate.
    scaled (bool): Divide the scores by `sqrt(d_k)`: the paper's "w/ scale".
    key_projection (bool): Project the keys, as FLAT-ATSSA does and TENER does not.
    """

    def __init__(
        self,
        *,
        width: int,
        n_heads: int,
        dropout: float = 0.0,
        scaled: bool = False,
        key_projection: bool = False,
    ) -> None:
        super().__init__(n_heads=n_heads, dropout=dropout)
        head_width = width // n_heads
        self.scale = 1.0 / math.sqrt(head_width) if scaled else 1.0
        self.query = Linear(width, width, bias=False)
        self.key = Linear(width, width, bias=False) if key_projection else nn.Identity()
        self.value = Linear(width, width, bias=False)
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values (eq. 16). *Shape:* (tokens, width) to (tokens, heads, head width) each"""
        query = split_heads(self.query(x), self.n_heads)
        key = split_heads(self.key(x), self.n_heads)
        value = split_heads(self.value(x), self.n_heads)
        return query, key, value

    def heads(self, x: Tensor, *context: Any) -> Heads:
        (relative,) = context
        query, key, value = self.project(x)
        to_keys = query + self.u
        to_positions = multiply_pairs(query + self.v, relative.query_factors)
        if self.scale != 1.0:
            to_keys = to_keys * self.scale
            to_positions = to_positions * self.scale
        return Heads(to_keys, key, value, to_positions, relative.key_table)


def multiply_pairs(x: Tensor, factors: Tensor) -> Tensor:
    """Multiply pairs of the last dimension, read as real and imaginary parts, by complex numbers.

    x (Tensor): *Shape:* (..., width)
    factors (Tensor): Complex numbers. *Shape:* (..., width / 2)
    RETURNS (Tensor): *Shape:* (..., width)
    """
    pairs = x.view(*x.shape[:-1], factors.shape[-1], 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * factors).flatten(-2)


def transformer_attention(config: TransformerConfig) -> Attention:
    """Return the attention of a layer."""
    attention = AdaptedAttention if config.adapted else VanillaAttention
    return attention(width=config.width, n_heads=config.heads, dropout=config.map_dropout, scaled=config.is_scaled)


class TransformerEncoder(nn.Module):
    """A stack of transformer layers over the concatenated sequences of a batch.

    config (TransformerConfig): Sizes and options.
    input_width (Optional[int]): Width of the input, which a linear layer projects to the width of the layers. None for
        no such layer.
    """

    def __init__(self, config: TransformerConfig, *, input_width: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Identity() if input_width is None else Linear(input_width, config.width)
        self.layers = nn.ModuleList(
            TransformerLayer(transformer_attention(config), config) for _ in range(config.layers)
        )

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode all tokens.

        x (Tensor): The tokens, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        ragged = Ragged.of(lengths, heads=self.config.heads, device=x.device, n_tokens=len(x))
        x = self.input(x)
        context: list[Any] = [ragged]
        if self.config.adapted:
            context.append(RelativePositions.of(ragged, self.config.head_width, x))
        else:
            positions = interleave(*sinusoids(ragged.longest, self.config.width, x))  # eq. 8, 9
            x = x + positions.index_select(0, ragged.positions)
        for layer in self.layers:
            x = layer(x, *context)
        return x
