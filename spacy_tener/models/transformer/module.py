"""A pretrained transformer as a torch module: from word pieces to one row of features per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from spacy.tokens import Doc
from torch import Tensor, nn

from ...layers.dropout import Dropout
from ...layers.ragged import Ragged
from ...layers.segments import Segments
from .feature_cache import FeatureCache
from .pieces import PieceReader, Pieces

Pooling = Literal["mean", "first"]

_AT_ONCE = 4096
"""Pieces, padding among them, that the transformer reads at once: what bounds memory where a batch has long texts."""


class PretrainedTransformer(nn.Module):
    """The features of tokens: the mean of their pieces' rows in the last layers, or the first piece's; 0 for a token
    without a piece.

    transformer: a model of the library transformers. Its parameters' names begin with `transformer.` here.
    reader: the reader of its pieces.
    frozen: leave the transformer as it is. Its own dropout is off, and no gradient is computed.
    layers: how many layers, from the last, are averaged.
    mixed_precision: let the transformer compute in bfloat16 where torch sees fit.
    cache: how many bytes of a frozen transformer's features are kept while training.
    """

    def __init__(
        self,
        transformer: Any,
        reader: PieceReader,
        *,
        frozen: bool,
        pooling: Pooling,
        layers: int,
        dropout: float,
        mixed_precision: bool,
        cache: int,
    ) -> None:
        super().__init__()
        self.transformer = transformer
        self.reader = reader
        self.frozen = frozen
        self.pooling = pooling
        self.layers = layers
        self.mixed_precision = mixed_precision
        self.dropout = Dropout(dropout)
        self.cache = FeatureCache(cache)
        # A batch uses a few hundred rows of a table that holds as many numbers as all layers of a small transformer.
        self.transformer.get_input_embeddings().sparse = True
        self.requires_grad_(not frozen)

    def train(self, mode: bool = True) -> PretrainedTransformer:
        super().train(mode)
        if self.frozen:
            self.transformer.eval()
        return self

    def forward(self, pieces: Pieces) -> Tensor:
        """*Shape: [N, width]*"""
        dropped: Tensor = self.dropout(self.features(pieces))
        return dropped

    def forward_frozen(self, docs: Sequence[Doc]) -> Tensor:
        """The same for Docs, where the transformer is frozen: without a gradient, and kept while training.

        *Shape: [N, width]*
        """
        if self.training:
            self.cache.start()
        with torch.no_grad():
            features = self.cache(docs, lambda some: self.features(self.reader(some)))
            dropped: Tensor = self.dropout(features.to(self._device))
        return dropped

    def features(self, pieces: Pieces) -> Tensor:
        """What there is before dropout. *Shape: [N, width]*"""
        device = self._device
        pairs = pieces.firsts() if self.pooling == "first" else pieces
        rows = torch.from_numpy(pairs.rows).to(device)
        tokens = Segments.of(pairs.tokens, pairs.n_tokens, device=device)
        return tokens.mean(self._hidden(pieces, device).index_select(0, rows))

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.transformer.parameters()).device
        return device

    def _hidden(self, pieces: Pieces, device: torch.device) -> Tensor:
        """What the transformer makes of all pieces. *Shape: [M, width]*"""
        if not len(pieces.lengths):
            return torch.zeros(0, self.transformer.config.hidden_size, device=device)
        ragged = Ragged.of(pieces.lengths, device=device)
        windows = ragged.pad(torch.from_numpy(pieces.ids)[:, None].to(device))
        read = [
            torch.cat(list(self._read(ids[:, 0, :, 0], bucket.mask)))
            for ids, bucket in zip(windows, ragged.buckets, strict=True)
        ]
        return ragged.join([part[:, None] for part in read])

    def _read(self, ids: Tensor, mask: Tensor | None) -> Iterator[Tensor]:
        """Windows of one length, some at a time. ids, mask: *Shape: [n, L]*. Each result: *Shape: [<= n, L, width]*"""
        at_once = max(1, _AT_ONCE // ids.shape[1])
        masks = torch.ones_like(ids) if mask is None else mask.long()
        for some, real in zip(ids.split(at_once), masks.split(at_once), strict=True):
            with torch.autocast(ids.device.type, torch.bfloat16, enabled=self.mixed_precision):
                output = self.transformer(
                    input_ids=some, attention_mask=real, output_hidden_states=self.layers > 1, return_dict=True
                )
            last = output.last_hidden_state
            yield (last if self.layers == 1 else torch.stack(output.hidden_states[-self.layers :]).mean(dim=0)).float()
