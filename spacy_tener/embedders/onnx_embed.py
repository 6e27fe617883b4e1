"""The embedder `spacy_tener.OnnxEmbed.v1`, which computes features with a frozen pretrained encoder in ONNX format.

The encoder can be Baidu's LAC, multilingual E5, or your own ONNX file. It requires onnxruntime, but not torch. During
training, each text's features are cached.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard

import numpy as np
from pydantic import NonNegativeInt, PositiveInt
from spacy.tokens import Doc
from spacy.util import logger
from thinc.api import Model
from thinc.model import deserialize_attr, serialize_attr

from ..features.cache import FeatureCache, cache_key
from ..features.characters import lengths_of
from ..features.tokens import TokenBatch
from ..nn.backends import Backend, Layer, Rows
from ..nn.compose import chain_layers, projection
from ..nn.run import forward
from ..nn.serialize import from_safetensors, to_safetensors
from ..nn.shim import EmbedModel
from ..onnx.e5 import E5Source
from ..onnx.encoder import Encoder
from ..onnx.lac_tagger import lac_encoder
from ..types import FloatArray
from ..validation import Probability, validated

_MB = 1_000_000
# Ratio of the maximum cache size on disk to the maximum cache size in memory.
_DISK_FACTOR = 20
# Minimum time between two progress messages, in seconds.
_SECONDS_BETWEEN_MESSAGES = 10.0

EncoderSource = Callable[[], Encoder]


@validated("spacy_tener.OnnxEmbed.v1")
def build_onnx_embed(
    encoder: EncoderSource | None = None,
    width: PositiveInt | None = 100,
    dropout: Probability = 0.3,
    cache: NonNegativeInt = 500,
) -> EmbedModel:
    """Create an embedder with a frozen pretrained encoder in ONNX format, followed by a linear layer.

    Registered as `spacy_tener.OnnxEmbed.v1`. The encoder requires the package onnxruntime, or onnxruntime-gpu on a GPU.
    It does not require torch. The encoder is saved with the pipeline. Use `spacy_tener.JoinEmbed.v1` to concatenate its
    output with another embedder, such as `spacy_tener.CharEmbed.v1`.

    encoder (Optional[Callable[[], Encoder]]): Function that loads the encoder: `spacy_tener.LacEncoder.v1`,
        `spacy_tener.E5.v1` or `spacy_tener.OnnxEncoder.v1`. It is only called by `initialize`. None for
        `spacy_tener.LacEncoder.v1`.
    width (Optional[int]): Output width of the linear layer. None to return the encoder's features without a linear
        layer and without dropout.
    dropout (float): Dropout rate for the features.
    cache (int): Maximum cache size in memory, in megabytes. During training, the features of the training and
        development texts are cached. A token needs 2 bytes for each feature dimension. Features that exceed the limit
        are cached in a temporary file of up to 20 times this size. 0 for no cache.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    if encoder is None:
        encoder = lac_encoder()
    features = OnnxFeatures(
        "onnx_features",
        forward,
        init=_init,
        dims={"nO": None},
        attrs={"features": FrozenFeatures(encoder, cache * _MB)},
    )
    if width is None:
        return features
    return chain_layers(features, projection(width, dropout))


class OnnxFeatures(Layer):
    """A layer that returns a frozen encoder's features, without computing gradients."""

    __slots__ = ()

    @property
    def encoders(self) -> list[Encoder]:
        features: FrozenFeatures = self.attrs["features"]
        return [features.encoder] if features.is_loaded else []

    def select_subwords(self, read: Callable[[], Iterable[str]]) -> None:
        features: FrozenFeatures = self.attrs["features"]
        if _selects_subwords(features.source):
            features.set(features.source.of_texts(read()))

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        # Pass one Doc for each window, so that the features do not depend on text outside the window.
        features = self.attrs["features"](inputs.docs, training=backend.training, gpu=backend.ops.name == "cupy")
        return backend.join([backend.ops.asarray2f(features)], learn=False)


class FrozenFeatures:
    """A frozen encoder with a cache for its features. The cache is only used during training.

    source (Callable[[], Encoder]): Function that loads the encoder.
    limit (int): Maximum cache size in memory, in bytes.
    """

    def __init__(self, source: EncoderSource, limit: int) -> None:
        self.source = source
        self.cache = FeatureCache(limit, _DISK_FACTOR * limit, half=True)
        self._encoder: Encoder | None = None
        self._n_computed, self._last_logged = 0, 0.0

    @property
    def is_loaded(self) -> bool:
        return self._encoder is not None

    @property
    def encoder(self) -> Encoder:
        if self._encoder is None:
            raise ValueError("The encoder is not loaded yet. Call nlp.initialize(), or load a trained pipeline.")
        return self._encoder

    def set(self, encoder: Encoder) -> None:
        """Replace the encoder and clear the cache."""
        self._encoder = encoder
        self.cache = FeatureCache(self.cache.limit, self.cache.on_disk, half=True)

    def __call__(self, docs: list[Doc], *, training: bool, gpu: bool) -> FloatArray:
        """Return the features of all tokens, using the cache during training. *Shape:* (tokens, width)

        docs (list[Doc]): The Docs.
        training (bool): Whether the model is being trained.
        gpu (bool): Whether to run the encoder on the GPU.
        """

        def encode(batch: Sequence[Doc]) -> list[FloatArray]:
            features = np.split(self.encoder(batch, gpu=gpu), np.cumsum(lengths_of(batch))[:-1])
            if training:
                self._log_progress(len(batch))
            return features

        return np.concatenate(self.cache(list(map(cache_key, docs)), docs, encode, training=training))

    def _log_progress(self, n_texts: int) -> None:
        """Log how many training texts have been encoded, at most every 10 seconds."""
        now, self._n_computed = time.monotonic(), self._n_computed + n_texts
        if self._n_computed == n_texts:
            self._last_logged = now
        if now - self._last_logged >= _SECONDS_BETWEEN_MESSAGES:
            logger.info("The encoder has encoded %d texts of the training data, each once", self._n_computed)
            self._last_logged = now


@serialize_attr.register(FrozenFeatures)
def _serialize(_: Any, value: FrozenFeatures, name: str, model: Model[Any, Any]) -> bytes:
    return to_safetensors({} if value._encoder is None else value.encoder.to_parts())


@deserialize_attr.register(FrozenFeatures)
def _deserialize(default: FrozenFeatures, value: bytes, name: str, model: Model[Any, Any]) -> FrozenFeatures:
    parts = from_safetensors(value)
    if parts:
        default.set(Encoder.from_parts(parts))
    return default


def _init(model: EmbedModel, X: list[Doc] | None = None, Y: Any = None) -> None:
    features: FrozenFeatures = model.attrs["features"]
    source = features.source
    # Load the encoder with the vocabulary of the first text only, which is fast. Before training, `select_subwords`
    # loads it again with the vocabulary of all training texts.
    features.set(source.of_texts(doc.text for doc in X[:1]) if _selects_subwords(source) and X else source())
    model.set_dim("nO", features.encoder.width, force=True)


def _selects_subwords(source: EncoderSource) -> TypeGuard[E5Source]:
    return isinstance(source, E5Source) and source.pieces != "all"
