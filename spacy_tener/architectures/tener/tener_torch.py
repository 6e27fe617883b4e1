"""Torch implementation of TENER's transformer encoder, for training and for prediction on a GPU.

`TransformerEncoder` is a stack of transformer layers. The layers use `AdaptedAttention` (Yan et al., 2019,
https://arxiv.org/abs/1911.04474, section 3.2) or `VanillaAttention` (section 2.2), the baseline in the paper.
`tener_numpy` implements the same classes for prediction on a CPU. Equation numbers refer to the paper.

Inputs and hidden states have the shape (tokens, width): the sequences in a batch are concatenated without padding.
`Ragged` contains the sequence lengths. It pads the sequences only while attention is computed.
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
    """Multi-head attention as in the vanilla transformer (Vaswani et al., 2017; eq. 1 to 6).

    The attention doesn't use positions, since the encoder adds position embeddings to its input. All linear layers have
    a bias, which is consistent with the parameter counts in the paper's supplement (6.1). In the authors' code, only
    the output layer has a bias.

    width (int): Input and output width d.
    n_heads (int): Number of attention heads h.
    dropout (float): Attention dropout rate.
    scaled (bool): Whether to divide the attention scores by `sqrt(d_k)` (eq. 3).
    """

    def __init__(self, *, width: int, n_heads: int, dropout: float = 0.0, scaled: bool = True) -> None:
        super().__init__(n_heads=n_heads, dropout=dropout)
        self.scale = 1.0 / math.sqrt(width // n_heads) if scaled else 1.0
        self.query = Linear(width, width)
        self.key = Linear(width, width)
        self.value = Linear(width, width)
        self.out = Linear(width, width)

    def heads(self, x: Tensor, *context: Any) -> Heads:
        query = split_heads(self.query(x), self.n_heads)
        key = split_heads(self.key(x), self.n_heads)
        value = split_heads(self.value(x), self.n_heads)
        # Scaling the queries is cheaper than scaling the scores (eq. 3), and equivalent.
        return Heads(query * self.scale, key, value)

    def forward(self, x: Tensor, ragged: Ragged, *context: Any) -> Tensor:
        """Compute self-attention within each sequence, and project the concatenated heads (eq. 6).

        x (Tensor): Hidden states. *Shape:* (tokens, width)
        ragged (Ragged): Sequence lengths.
        RETURNS (Tensor): *Shape:* (tokens, width)
        """
        return self.out(super().forward(x, ragged, *context))


@dataclass(frozen=True)
class RelativePositions:
    """Sinusoidal tables from which `AdaptedAttention` computes the position term of its scores.

    All encoder layers use the same tables. The frequencies are `c_i = 10000^(-2i / d_k)` (eq. 17), where d_k is the
    width of a head.

    key_table (Tensor): `[.., cos(c_i j), sin(c_i j), ..]` for each key position j. *Shape:* (length, head width)
    query_factors (Tensor): `sin(c_i t) - i cos(c_i t)` for each token, where t is its position in the sequence.
        *Shape:* (tokens, 1, head width / 2)
    """

    key_table: Tensor
    query_factors: Tensor

    @classmethod
    def of(cls, ragged: Ragged, head_width: int, like: Tensor) -> RelativePositions:
        """Compute the sinusoidal tables for a batch.

        ragged (Ragged): Sequence lengths.
        head_width (int): Head width d_k.
        like (Tensor): The tables get this tensor's device and dtype.
        """
        sin, cos = sinusoids(ragged.longest, head_width, like)
        query_factors = torch.complex(sin, -cos).index_select(0, ragged.positions)
        return cls(interleave(cos, sin), query_factors[:, None])


class AdaptedAttention(Attention):
    """TENER's multi-head attention, which uses the direction and distance between tokens (section 3.2).

    The keys are the input itself, split into heads. There is no output projection. The score for a query at position t
    and a key at position j is the sum of a content term and a position term (eq. 17, 18):

        A[t, j] = (q_t + u) . k_j + (q_t + v) . r_{t-j}
        r_{t-j} = [.., sin(c_i (t-j)), cos(c_i (t-j)), ..],    c_i = 10000^(-2i / d_k)

    Implemented directly, the position term needs an embedding for every distance `t - j`, and the relative shift from
    Transformer-XL. This implementation avoids both with the angle difference identities. Write each pair (a, b) of
    adjacent dimensions in `q_t + v` as the complex number `z = a + ib`. The dot product of this pair and the
    corresponding pair in `r_{t-j}` is

        a sin(c_i (t-j)) + b cos(c_i (t-j)) = Re(z . (sin(c_i t) - i cos(c_i t)) . e^(-i c_i j))
                                            = p_t . [cos(c_i j), sin(c_i j)],    p_t = z . (sin(c_i t) - i cos(c_i t))

    In the last line, `p_t` is a pair of real numbers again. It depends only on the query. The other factor depends only
    on the key. Therefore, the scores are those in dot-product attention with heads that are twice as wide:

        A[t, j] = [q_t + u ; p_t] . [k_j ; .., cos(c_i j), sin(c_i j), ..]

    The scores have the same accuracy in long sequences as in short sequences.

    width (int): Input and output width d.
    n_heads (int): Number of attention heads h. The head width, `d_k = width / n_heads`, must be even.
    dropout (float): Attention dropout rate.
    scaled (bool): Whether to divide the attention scores by `sqrt(d_k)`, as in the paper's variant "w/ scale".
    key_projection (bool): Whether to apply a linear layer to the keys. FLAT-ATSSA uses this layer, TENER doesn't.
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
        # Bias vectors for the content term and the position term (eq. 17), initialized as in the authors' code.
        self.u = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))
        self.v = nn.Parameter(nn.init.xavier_normal_(torch.empty(n_heads, head_width)))

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute queries, keys and values, split into heads (eq. 16).

        x (Tensor): Hidden states. *Shape:* (tokens, width)
        RETURNS (Tuple[Tensor, Tensor, Tensor]): Queries, keys and values. *Shape:* (tokens, heads, head width) each
        """
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
    """Multiply a tensor elementwise by complex numbers.

    Adjacent dimensions (a, b) of the tensor represent the complex number a + ib.

    x (Tensor): Pairs of real and imaginary parts. *Shape:* (..., width)
    factors (Tensor): Complex numbers. *Shape:* (..., width / 2)
    RETURNS (Tensor): Pairs of real and imaginary parts. *Shape:* (..., width)
    """
    pairs = x.view(*x.shape[:-1], factors.shape[-1], 2)
    return torch.view_as_real(torch.view_as_complex(pairs) * factors).flatten(-2)


def transformer_attention(config: TransformerConfig) -> Attention:
    """Build the attention module for a transformer layer: adapted or vanilla attention."""
    attention = AdaptedAttention if config.adapted else VanillaAttention
    return attention(
        width=config.width, n_heads=config.heads, dropout=config.attention_dropout_rate, scaled=config.is_scaled
    )


class TransformerEncoder(nn.Module):
    """A stack of transformer layers with adapted or vanilla attention.

    config (TransformerConfig): Encoder hyperparameters.
    input_width (Optional[int]): Input width. A linear layer projects the input to `config.width`. If None, there is no
        linear layer, and the input must have the width `config.width`.
    """

    def __init__(self, config: TransformerConfig, *, input_width: int | None = None) -> None:
        super().__init__()
        self.config = config
        self.input = nn.Identity() if input_width is None else Linear(input_width, config.width)
        self.layers = nn.ModuleList(
            TransformerLayer(transformer_attention(config), config) for _ in range(config.layers)
        )

    def forward(self, x: Tensor, lengths: Lengths) -> Tensor:
        """Encode a batch of sequences.

        x (Tensor): Token embeddings, concatenated. *Shape:* (tokens, input width)
        lengths (Lengths): Token count per sequence. *Shape:* (sequences,)
        RETURNS (Tensor): Hidden states. *Shape:* (tokens, width)
        """
        ragged = Ragged.of(lengths, heads=self.config.heads, device=x.device, n_tokens=len(x))
        x = self.input(x)
        context: list[Any] = [ragged]
        if self.config.adapted:
            context.append(RelativePositions.of(ragged, self.config.head_width, x))
        else:
            # Vanilla attention: add sinusoidal position embeddings to the input (eq. 8, 9).
            positions = interleave(*sinusoids(ragged.longest, self.config.width, x))
            x = x + positions.index_select(0, ragged.positions)
        for layer in self.layers:
            x = layer(x, *context)
        return x
