"""A pretrained transformer as a torch module: from word pieces to one row of features per token."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc
from torch import Tensor, nn

from ...errors import RemedyError
from ...features.pieces import PieceReader, Pieces
from ...layers.dense import Dropout
from ...layers.devices import on_device
from ...layers.ragged import Ragged, Segments
from ...settings import Count, Probability, Settings, Size, check
from .precision import in_bfloat16

Key = tuple[str, bytes]
Read = Callable[[Sequence[Doc]], Tensor]

_NOTED = 100_000
"""Maximum number of predicted texts that are remembered since the last update, and of those before it: more than a
corpus has in its dev part."""
_AT_ONCE = {"cpu": 4096, "cuda": 1 << 16}
"""Maximum number of word pieces, with padding, that a prediction computes at once, to limit memory for long texts. On
a GPU with little free memory it is smaller."""
_FREE_SHARE = 0.5
"""The share of a GPU's free memory that they may take."""
_PIECES_PER_CALL = {"cpu": 32, "cuda": 1 << 14}
"""Cost of one more call, in pieces of padding: computing these takes as long as launching a dozen layers."""


@dataclass(frozen=True, kw_only=True)
class TransformerEmbedConfig(Settings):
    """Settings of the embedder of a pretrained transformer: `build_transformer_embed`."""

    frozen: bool
    pooling: Literal["mean", "first"]
    layers: Size
    dropout: Probability
    window: int
    overlap: Count
    mixed_precision: bool | Literal["gpu"]
    cache: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        least = 2 * self.overlap + 16
        check("window", self.window, self.window >= least, f"at least {least}, twice the overlap and 16 pieces")


class PretrainedTransformer(nn.Module):
    """The features of tokens: the mean of their pieces' rows in the last layers, or the first piece's; 0 for a token
    without a piece.

    transformer: A model of the library transformers. Its parameters' names begin with `transformer.` here.
    reader: The reader of its pieces.
    """

    def __init__(self, transformer: Any, reader: PieceReader, config: TransformerEmbedConfig) -> None:
        super().__init__()
        self.transformer = transformer
        self.reader = reader
        self.config = config
        self.dropout = Dropout(config.dropout)
        self.cache = FeatureCache(config.cache * 1_000_000)
        # A batch uses a few hundred rows of a table that holds as many numbers as all layers of a small transformer.
        self.transformer.get_input_embeddings().sparse = True
        self.requires_grad_(not config.frozen)

    def train(self, mode: bool = True) -> PretrainedTransformer:
        super().train(mode)
        if self.config.frozen:
            self.transformer.eval()
        return self

    def forward(self, docs: Sequence[Doc]) -> Tensor:
        """*Shape: [N, width]*"""
        if self.config.frozen:
            # On a GPU the last digits differ from run to run anyway, and many small calls would leave it idle.
            alone = self._device.type == "cpu"
            with torch.no_grad():
                features = self.cache(docs, self._read_docs, training=self.training, alone=alone)
        else:
            features = self._read_docs(docs)
        dropped: Tensor = self.dropout(features)
        return dropped

    def _read_docs(self, docs: Sequence[Doc]) -> Tensor:
        return self.features(self.reader(docs))

    def features(self, pieces: Pieces) -> Tensor:
        """Return the features before dropout. *Shape: [N, width]*"""
        device = self._device
        pairs = pieces.firsts() if self.config.pooling == "first" else pieces
        rows = on_device(pairs.rows, device)
        tokens = Segments.of(pairs.tokens, pairs.n_tokens, device=device)
        return tokens.mean(self._hidden(pieces, device).index_select(0, rows))

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.transformer.parameters()).device
        return device

    def _mixes(self, device: torch.device) -> bool:
        if self.config.mixed_precision == "gpu":
            # The first GPUs with bfloat16 are of compute capability 8.0.
            return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        if self.config.mixed_precision and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise RemedyError(
                "spacy_tener.TransformerEmbed.v1: mixed_precision is true, but this GPU does not have bfloat16",
                'Set mixed_precision = "gpu", which leaves it off on such a GPU, or false.',
            )
        return self.config.mixed_precision

    def _at_once(self, device: torch.device) -> int:
        """Return how many pieces are read at once."""
        if device.type != "cpu" and torch.is_grad_enabled():
            # Activations are kept for the gradient, in one call or in several.
            return sys.maxsize
        if device.type != "cuda":
            return _AT_ONCE["cpu"]
        free: int = torch.cuda.mem_get_info(device)[0]
        free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        config: Any = self.transformer.config
        # Peak memory of a layer per piece, in 32-bit floats.
        floats: int = 16 * config.hidden_size + 3 * getattr(config, "intermediate_size", 4 * config.hidden_size)
        floats += config.num_hidden_layers * config.hidden_size if self.config.layers > 1 else 0
        return min(_AT_ONCE["cuda"], int(_FREE_SHARE * free) // (4 * floats))

    def _hidden(self, pieces: Pieces, device: torch.device) -> Tensor:
        """Return the rows of all pieces. *Shape: [M, width]*"""
        if not len(pieces.lengths):
            return torch.zeros(0, self.transformer.config.hidden_size, device=device)
        price = _PIECES_PER_CALL["cpu" if device.type == "cpu" else "cuda"]
        ragged = Ragged.of(pieces.lengths, device=device, price=price, by_tokens=True)
        windows = ragged.pad(on_device(pieces.ids[:, None], device))
        computes = in_bfloat16(self.transformer, device) if self._mixes(device) else nullcontext(self.transformer)
        at_once = self._at_once(device)
        with computes as transformer:
            read = [
                torch.cat(list(self._read(transformer, ids[:, 0, :, 0], bucket.key_mask, at_once)))
                for ids, bucket in zip(windows, ragged.buckets, strict=True)
            ]
        return ragged.join([part[:, None] for part in read])

    def _read(
        self, transformer: Callable[..., Any], ids: Tensor, key_mask: Tensor | None, at_once: int
    ) -> Iterator[Tensor]:
        """Yield the rows of windows of one length, some windows at a time.

        ids: *Shape: [n, L]*; key_mask: of the bucket; at_once: pieces. Each result: *Shape: [<= n, L, width]*
        """
        n_layers, step = self.config.layers, max(1, at_once // ids.shape[1])
        masks = torch.ones_like(ids) if key_mask is None else (key_mask[:, 0, 0] == 0.0).long()
        for some, real in zip(ids.split(step), masks.split(step), strict=True):
            yield mean_of_layers(transformer, some, real, n_layers).float()


def mean_of_layers(transformer: Callable[..., Any], ids: Tensor, mask: Tensor, n_layers: int) -> Tensor:
    """Return the mean of a transformer's last layers. *Shape:* [n, L], [n, L] to [n, L, width]"""
    output = transformer(input_ids=ids, attention_mask=mask, output_hidden_states=n_layers > 1, return_dict=True)
    last: Tensor = output.last_hidden_state
    return last if n_layers == 1 else torch.stack(output.hidden_states[-n_layers:]).mean(dim=0)


class FeatureCache:
    """Cache of Docs' features by text and token offsets, on the transformer's device.

    It keeps features of Docs in training, and of Docs that are predicted both before and after an update, as those of
    dev are. So nothing is added when training has ended, or `limit` bytes are reached. Copies start empty.

    Features to keep can be computed for each Doc alone: in a batch they would differ in the last digits, and a training
    that was interrupted would end with other weights than one that was not.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._started = False
        self._kept: dict[Key, Tensor] = {}
        # Hashes of Docs that were predicted since the last update, and before it.
        self._predicted: set[int] = set()
        self._evaluated: set[int] = set()

    def __reduce__(self) -> tuple[type[FeatureCache], tuple[int]]:
        return FeatureCache, (self.limit,)

    def __call__(self, docs: Sequence[Doc], read: Read, *, training: bool, alone: bool = True) -> Tensor:
        """Return the features of all tokens of the Docs. *Shape: [N, width]*

        read: Computes the features of Docs, *Shape: [N, width]*.
        alone: Compute features to keep for each Doc alone, rather than in a batch.
        """
        if training:
            self._started = self.limit > 0
            if self.size < self.limit and len(self._evaluated) < _NOTED:
                self._evaluated |= self._predicted
            self._predicted.clear()
        if not self._started:
            return read(docs)
        keys = [_key_of(doc) for doc in docs]
        found: dict[Key, Tensor] = {}
        left: dict[Key, Doc] = {}
        for key, doc in zip(keys, docs, strict=True):
            if key in self._kept:
                found[key] = self._kept[key]
            elif alone and self._keeps(key, training=training):
                found[key] = self._keep(key, read([doc]))
            else:
                left[key] = doc
        if left:
            parts = read(list(left.values())).split([len(doc) for doc in left.values()])
            found.update(zip(left, parts, strict=True))
            for key, part in zip(left, parts, strict=True):
                if not alone and self._keeps(key, training=training):
                    self._keep(key, part.clone())
        if not training and len(self._predicted) < _NOTED:
            self._predicted.update(map(hash, left))
        return torch.cat([found[key] for key in keys])

    def _keeps(self, key: Key, *, training: bool) -> bool:
        return self.size < self.limit and (training or hash(key) in self._evaluated)

    def _keep(self, key: Key, features: Tensor) -> Tensor:
        self._kept[key] = features
        self.size += features.nbytes
        return features


def _key_of(doc: Doc) -> Key:
    return doc.text, doc.to_array([IDX, LENGTH]).tobytes()
