"""FLAT-ATSSA's encoder (Hu et al., 4.2): words fused into the characters, then layers of selective attention."""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from ...batching.lattice import Lattice
from ...settings import AtssaConfig
from ..attention.adapted import AdaptedAttention, RelativePositions
from ..attention.dot_product import Attention
from ..attention.transformer import TransformerLayer, each_layer
from ..linear import Linear
from ..ragged import Ragged
from ..segments import Segments
from .selective_attention import Selection, SelectiveAttention
from .word_fusion import Covers, WordFusion


def context_attention(config: AtssaConfig) -> Attention:
    """The attention of one context layer."""
    sizes: Any = {"width": config.width, "n_heads": config.heads, "dropout": config.map_dropout}
    if not config.selects:
        return AdaptedAttention(**sizes, key_projection=True)
    by: Literal["threshold", "top_k"] = "top_k" if config.selection == "top_k" else "threshold"
    selection = Selection(by=by, k=config.k, alpha=config.alpha, tau=config.tau)
    adaptive = config.threshold == "adaptive"
    return SelectiveAttention(**sizes, selection=selection, adaptive=adaptive, penalty=config.penalty)


class AtssaEncoder(nn.Module):
    """Word fusion, `[x ; x^w]` brought to the model's width, and context layers over the characters.

    config: sizes and choices.
    char_width: width of the characters.
    word_width: width of the words.
    """

    def __init__(self, config: AtssaConfig, char_width: int, word_width: int) -> None:
        super().__init__()
        self.config = config
        self.fusion = WordFusion(
            char_width=char_width,
            word_width=word_width,
            width=config.fused_width,
            n_heads=config.heads,
            dropout=config.map_dropout,
        )
        self.input = Linear(char_width + config.fused_width, config.width)
        self.layers = nn.ModuleList(TransformerLayer(context_attention(config), config) for _ in range(config.layers))
        self.output_norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()

    def forward(self, chars: Tensor, words: Tensor, lattice: Lattice) -> Tensor:
        """Encode the characters of all sentences, joined.

        chars: *Shape: [N, char_width]*; words: *Shape: [W, word_width]*. Returns *Shape: [N, d]*
        """
        x, *context = self._read(chars, words, lattice)
        for layer in self.layers:
            x = layer(x, *context)
        return cast(Tensor, self.output_norm(x))

    def attention_weights(self, chars: Tensor, words: Tensor, lattice: Lattice) -> list[list[Tensor]]:
        """The attention map of each sentence in each layer, in evaluation. *Shape: [h, length, length]* each"""
        return each_layer(self.layers, TransformerLayer.weights, *self._read(chars, words, lattice))

    def kept_keys(self, chars: Tensor, words: Tensor, lattice: Lattice) -> list[list[Tensor]]:
        """How many keys each query of each sentence keeps in each layer, in evaluation. *Shape: [h, length]* each"""
        return each_layer(self.layers, _kept_keys, *self._read(chars, words, lattice))

    def word_weights(self, chars: Tensor, words: Tensor, lattice: Lattice) -> list[Tensor]:
        """How strongly each character of each sentence reads each of its words, 0 for words that do not cover it.

        *Shape: [h, length, words]* each
        """
        lattice.check_rows(characters=len(chars), words=len(words))
        covers = Covers.of(lattice, device=chars.device)
        weights = chars.new_zeros(self.config.heads, len(chars), len(words))
        weights[:, covers.characters.index, covers.words.index] = self.fusion.weights(chars, words, covers).T
        rows, columns = lattice.lengths.tolist(), lattice.counts.tolist()
        return [part.split(columns, dim=2)[i] for i, part in enumerate(weights.split(rows, dim=1))]

    def _read(self, chars: Tensor, words: Tensor, lattice: Lattice) -> tuple[Any, ...]:
        """The first layer's input, and what each layer needs to know beside it."""
        lattice.check_rows(characters=len(chars), words=len(words))
        fused = self.fusion(chars, words, Covers.of(lattice, device=chars.device))
        x = self.input(torch.cat((chars, fused), dim=-1))
        ragged = Ragged.of(lattice.lengths, heads=self.config.heads, device=x.device)
        relative = RelativePositions.of(ragged, self.config.head_width, x)
        if not self.config.selects:
            return x, ragged, relative
        return x, ragged, relative, Segments.of_sequences(lattice.lengths, device=x.device)


def _kept_keys(layer: TransformerLayer, x: Tensor, ragged: Ragged, *context: Any) -> list[Tensor]:
    if isinstance(layer.attention, SelectiveAttention):
        return layer.attention.kept(layer.attention_input(x), ragged, *context)
    return [x.new_full((ragged.heads, length), length, dtype=torch.int64) for length in ragged.lengths]
