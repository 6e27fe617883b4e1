"""TENER and the vanilla transformer in torch: vanilla attention (eq. 1 to 6), adapted attention (eq. 16 to 19), and the
encoder of both.
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
    """Attention as in Vaswani et al.: projected keys, scaled scores, an output projection; positions are in its input.

    Its linear layers have biases, as the parameter counts in the TENER paper's supplement (6.1) show; the released
    code has one at the output only.
    """

    def __init__(self, *, width: int, n_heads: int, dropout: float = 0.0, scaled: bool = True) -> None:
        super().__init__(n_heads=n_heads, dropout=dropout)
        self.scale = 1.0 / math.sqrt(width // n_heads) if scaled else 1.0
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.out = Linear(width, width)

    def heads(self, x: Tensor, *context: Any) -> Heads:
        q, k, v = (split_heads(part(x), self.n_heads) for part in (self.query, self.key, self.value))  # eq. 1, 4
        return Heads(q * self.scale, k, v)

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        return self.out(super().forward(x, ragged, *context))  # eq. 6


@dataclass(frozen=True)
class RelativePositions:
    """Factors of relative positions for queries and for keys. Made once per batch, for all layers.

    table (Tensor): `[cos(c j), sin(c j), ..]` by position. *Shape:* (longest, head width)
    query_turn (Tensor): `sin(c t) - i cos(c t)` of each token's own position. *Shape:* (tokens, 1, head width / 2)
    """

    table: Tensor
    query_turn: Tensor

    @classmethod
    def of(cls, ragged: Ragged, head_width: int, like: Tensor) -> RelativePositions:
        """Make the positions of a batch.

        like (Tensor): A tensor whose device and dtype they get.
        """
        sin, cos = sinusoids(ragged.longest, head_width, like)
        return cls(interleave(cos, sin), torch.complex(sin, -cos).index_select(0, ragged.positions)[:, None])


class AdaptedAttention(Attention):
    """Multi-head attention of the adapted transformer. Its keys are the input itself, split into heads; no output
    projection follows.

    It is aware of direction and distance, and un-scaled (eq. 16 to 19). For a query at `t` and a key at `j` the paper
    has

        A[t, j] = (q_t + u) . k_j + (q_t + v) . r_{t-j}

    with `r_{t-j} = [.., sin((t-j) c_i), cos((t-j) c_i), ..]`, `c_i = 10000^(-2i / d_k)`, and no scale. A pair (sine,
    cosine) of `q_t + v` is read as one complex number `z`. Then its product with `r_{t-j}` is

        Re(z . -i e^{i c t} . e^{-i c j}) = turned_t . [cos(c j), sin(c j)],    turned_t = z . (sin(c t) - i cos(c t))

    so that, per head, `A[t, j] = [q_t + u ; turned_t] . [k_j ; cos(c j), sin(c j), ..]`: ordinary attention of twice
    the head width, with no table of relative positions, no shifting, and positions exact at any length.

    width (int): Width d of input and output.
    n_heads (int): Number of heads h; `d_k = width / n_heads` must be even.
    dropout (float): Dropout on the attention map.
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
        q, k, v = (split_heads(part(x), self.n_heads) for part in (self.query, self.key, self.value))
        return q, k, v

    def heads(self, x: Tensor, *context: Any) -> Heads:
        (relative,) = context
        q, k, v = self.project(x)
        queries, q_position = q + self.u, turn(q + self.v, relative.query_turn)
        if self.scale != 1.0:
            queries, q_position = queries * self.scale, q_position * self.scale
        return Heads(queries, k, v, q_position, relative.table)


def turn(x: Tensor, by: Tensor) -> Tensor:
    """Multiply by complex numbers, reading each pair of the last dimension as a real and an imaginary part.

    x (Tensor): *Shape:* (..., width)
    by (Tensor): The complex numbers. *Shape:* (..., width / 2)
    RETURNS (Tensor): *Shape:* (..., width)
    """
    return torch.view_as_real(torch.view_as_complex(x.view(*x.shape[:-1], by.shape[-1], 2)) * by).flatten(-2)


def transformer_attention(config: TransformerConfig) -> Attention:
    """Return the attention of one layer."""
    scaled = not config.adapted if config.scaled is None else config.scaled
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout, "scaled": scaled}
    if not config.adapted:
        return VanillaAttention(**sizes)
    return AdaptedAttention(**sizes)


class TransformerEncoder(nn.Module):
    """A stack of layers over the sequences of a flat batch.

    config (TransformerConfig): Sizes and choices.
    input_width (int | None): Width of the input, for a linear layer to the model's width; None for no such layer.
    """

    def __init__(self, config: TransformerConfig, *, input_width: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Identity() if input_width is None else Linear(input_width, config.width)
        self.layers = nn.ModuleList(
            TransformerLayer(transformer_attention(config), config) for _ in range(config.layers)
        )

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode the tokens of all sequences, joined. *Shape:* (tokens, input width) to (tokens, width)

        lengths (Lengths): The number of tokens of each sequence. *Shape:* (sequences,)
        """
        ragged = Ragged.of(lengths, heads=self.config.heads, device=x.device, n_tokens=len(x))
        x, relative = self.input(x), []
        if self.config.adapted:
            relative = [RelativePositions.of(ragged, self.config.head_width, x)]
        else:
            positions = interleave(*sinusoids(ragged.longest, self.config.width, x))
            x = x + positions.index_select(0, ragged.positions)
        for layer in self.layers:
            x = layer(x, ragged, *relative)
        return x
