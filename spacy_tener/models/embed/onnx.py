"""Embedder of tokens by a pretrained encoder in an ONNX file, whose features do not change in training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr

from ...onnx.encoder import Encoder
from ...onnx.lac import lac_encoder
from ...runtime.dense import Projection as Projecting
from ...settings import Count, Probability, Size, check_each, named
from ...types import FloatArray
from ..batches import token_counts
from ..bridge import EmbedModel
from ..parts import chain_layers, own_layer, ragged_layer
from ..run import HostRun, Rows
from ..serialize import from_safetensors, to_safetensors

if TYPE_CHECKING:
    from torch import nn

_MB = 1_000_000
_ON_DISK = 20
"""Features on disk may take so many times the memory of those that are kept there."""
_NOTED = 100_000
"""Maximum number of predicted texts that are remembered, until one is predicted again."""

EncoderSource = Callable[[], Encoder]
_Key = tuple[str, bytes]


@named("spacy_tener.OnnxEmbed.v1")
def build_onnx_embed(
    encoder: EncoderSource | None = None, width: int | None = 100, dropout: float = 0.3, cache: int = 500
) -> EmbedModel:
    """Embed each token by the features of a pretrained encoder in an ONNX file, as they are, and a linear layer.

    Registered as `spacy_tener.OnnxEmbed.v1`. Join it with `spacy_tener.CharEmbed.v1` by `spacy_tener.JoinEmbed.v1`. The
    encoder needs the package onnxruntime and no torch; on a GPU, onnxruntime-gpu. It is saved with the pipeline, and
    its source is read by `initialize` only.

    encoder (Optional[Callable[[], Encoder]]): The encoder: `spacy_tener.OnnxEncoder.v1`, or the default,
        `spacy_tener.LacEncoder.v1`.
    width (Optional[int]): Width of the output, by a trained linear layer. None for the features themselves, without
        that layer and its dropout.
    dropout (float): Dropout on the encoder's features.
    cache (int): Maximum size in megabytes of the features that are kept in memory during training, which reads each
        text of train and dev again and again; further ones, up to 20 times as many, are in a temporary file. A token
        takes 4 bytes for each feature. 0 keeps none.
    """
    check_each(Size, width=width)
    check_each(Probability, dropout=dropout)
    check_each(Count, cache=cache)
    features: EmbedModel = own_layer(
        "onnx_features",
        _compute,
        init=_init,
        dims={"nO": None},
        attrs={"features": FrozenFeatures(encoder or lac_encoder(), cache * _MB)},
    )
    if width is None:
        return features
    project = ragged_layer("project", partial(_build_projection, dropout=dropout), Projecting, width_out=width)
    return chain_layers(features, project)


def _build_projection(*, nI: int, nO: int, dropout: float) -> nn.Module:
    from ...layers.dense import Projection

    return Projection(width_in=nI, width_out=nO, dropout=dropout)


class FrozenFeatures:
    """An encoder and, during training, its features of texts, each computed once.

    Features are kept of texts in training, and of those that are predicted again after it began, as the dev part is.
    Copies start with none.

    source: Reads the encoder.
    limit: Maximum size in memory, in bytes.
    """

    def __init__(self, source: EncoderSource, limit: int) -> None:
        self.source, self.limit = source, limit
        self._encoder: Encoder | None = None
        self.forget()

    def forget(self) -> None:
        """Remove all features."""
        self.kept: dict[_Key, FloatArray | tuple[int, int]] = {}
        self.size = self._on_disk = 0
        self._file: IO[bytes] | None = None
        self._training = False
        self._predicted: set[int] = set()

    def __getstate__(self) -> dict[str, Any]:
        return {"source": self.source, "limit": self.limit, "_encoder": self._encoder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forget()

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            raise ValueError("The encoder was not read yet. Call nlp.initialize(), or load a trained pipeline.")
        return self._encoder

    def set(self, encoder: Encoder) -> None:
        """Replace the encoder."""
        self._encoder = encoder
        self.forget()

    def __call__(self, docs: list[Doc], *, training: bool, gpu: bool) -> FloatArray:
        """Return the features of all tokens of the Docs. *Shape* [N, width]"""
        self._training |= training and self.limit > 0
        if not self._training:
            return self.encoder(docs, gpu=gpu)
        keys = [(doc.text, doc.to_array([IDX, LENGTH]).tobytes()) for doc in docs]
        found = {key: self._read(self.kept[key]) for key in keys if key in self.kept}
        missing = {key: doc for key, doc in zip(keys, docs, strict=True) if key not in found}
        if missing:
            rows = self.encoder(list(missing.values()), gpu=gpu)
            ends = np.cumsum(token_counts(list(missing.values())))
            for key, own in zip(missing, np.split(rows, ends[:-1]), strict=True):
                found[key] = own
                if training or self._seen(hash(key)):
                    self._keep(key, own)
        return np.concatenate([found[key] for key in keys])

    def _seen(self, text: int) -> bool:
        """Note a predicted text; return whether it was predicted before."""
        seen = text in self._predicted
        if len(self._predicted) < _NOTED:
            self._predicted.add(text)
        return seen

    def _keep(self, key: _Key, rows: FloatArray) -> None:
        if self.size + rows.nbytes <= self.limit:
            self.kept[key] = rows.copy()
            self.size += rows.nbytes
        elif self._on_disk + rows.nbytes <= _ON_DISK * self.limit:
            self._file = self._file or TemporaryFile()  # noqa: SIM115 - open as long as the features are kept
            self._file.seek(self._on_disk)
            self._file.write(rows.tobytes())
            self.kept[key] = self._on_disk, len(rows)
            self._on_disk += rows.nbytes

    def _read(self, kept: FloatArray | tuple[int, int]) -> FloatArray:
        if not isinstance(kept, tuple):
            return kept
        assert self._file is not None
        start, n_rows = kept
        self._file.seek(start)
        width = self.encoder.width
        return np.frombuffer(self._file.read(4 * n_rows * width), dtype=np.float32).reshape(n_rows, width)


@serialize_attr.register(FrozenFeatures)
def _serialize(_: Any, value: FrozenFeatures, name: str, model: Model[Any, Any]) -> bytes:
    return to_safetensors({} if value._encoder is None else value.encoder.to_parts())


@deserialize_attr.register(FrozenFeatures)
def _deserialize(default: FrozenFeatures, value: bytes, name: str, model: Model[Any, Any]) -> FrozenFeatures:
    if parts := from_safetensors(value):
        default.set(Encoder.from_parts(parts))
    return default


def _init(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    features: FrozenFeatures = model.attrs["features"]
    features.set(features.source())
    model.set_dim("nO", features.encoder.width, force=True)


def _compute(model: EmbedModel, run: HostRun, docs: list[Doc]) -> Rows:
    features = model.attrs["features"](docs, training=run.training, gpu=run.ops.name == "cupy")
    return run.rows([run.ops.asarray2f(features)], learn=False)
