"""Transformers of trained models as encoders in ONNX, which predict without torch."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from io import BytesIO
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from ...errors import RemedyError, check_package
from ...features.pieces import WordPieces
from ...onnx.encoder import IDS, MASK, REQUIREMENT, Encoder
from ...onnx.int8 import to_int8
from ...onnx.sources import make_encoder, onnx_encoder
from ..embed.onnx import build_onnx_embed
from ..shim import EmbedModel, torch_shim
from .module import PretrainedTransformer, mean_of_layers

Precision = Literal["float32", "int8"]
SHARED = "pooling", "window", "overlap"
"""Settings that both embedders have."""
EXPORTERS = {"torch": "2.13", "transformers": "4.53", "onnx": "1.23"}
"""The versions that the conversion is tested with."""
_OPSET = 17
_FEATURES = "features"
_CLOSE = 1e-3
"""The most by which features may differ from torch's, as a share of the largest one."""


def to_onnx_embed(model: EmbedModel, precision: Precision) -> EmbedModel:
    """Return an `OnnxEmbed` with the features of a `TransformerEmbed`."""
    module: PretrainedTransformer = torch_shim(model).module
    settings = {name: getattr(module.config, name) for name in SHARED}
    embedder = build_onnx_embed(onnx_encoder(**settings), width=None)
    embedder.attrs["features"].set(_encoder_of(module, torch_shim(model).sizes, precision))
    embedder.set_dim("nO", model.get_dim("nO"))
    return embedder


def to_onnx_section(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section of a config for that embedder, from that of the `TransformerEmbed`."""
    encoder = {"@misc": "spacy_tener.OnnxEncoder.v1", **{name: section[name] for name in SHARED}}
    return {"@architectures": "spacy_tener.OnnxEmbed.v1", "width": None, "encoder": encoder}


def other_versions() -> list[str]:
    """Return the exporting packages whose versions are not those that the conversion is tested with."""
    for name in (*EXPORTERS, "onnxruntime"):
        remedy = f"Install what it takes by `pip install onnx '{REQUIREMENT}'`."
        check_package(name, "To convert a transformer takes", remedy)
    installed = {name: version(name) for name in EXPORTERS}
    return [
        f"{name} {installed[name]}"
        for name, tested in EXPORTERS.items()
        if not installed[name].startswith(f"{tested}.")
    ]


class _Features(nn.Module):
    """The mean of some of a transformer's layers. *Shape:* (texts, pieces) twice, to (texts, pieces, width)"""

    def __init__(self, transformer: Any, layers: int | Sequence[int]) -> None:
        super().__init__()
        self.transformer = transformer
        self.layers = layers

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return mean_of_layers(self.transformer, ids, mask, self.layers)


def _encoder_of(module: PretrainedTransformer, parts: dict[str, Any], precision: Precision) -> Encoder:
    reader, config = module.reader, module.config
    kind = json.loads(parts["transformer"])["model_type"]
    features = _Features(module.transformer, config.layers).eval()
    data = _export(features, kind)
    longest = reader.size + len(reader.before) + len(reader.after)

    def encoder(graph: bytes) -> Encoder:
        return make_encoder(
            graph,
            WordPieces(parts["tokenizer"]),
            inputs={IDS: IDS, MASK: MASK},
            outputs=[_FEATURES],
            about={"name": f"{kind}, {precision}", "origin": "the transformer of a trained pipeline"},
            window=longest,
            overlap=reader.overlap,
            pooling=config.pooling,
            source=f"The {kind} in ONNX",
        )

    _compare(encoder(data), features, longest)
    return encoder(to_int8(data) if precision == "int8" else data)


def _export(features: _Features, kind: str) -> bytes:
    file, ids = BytesIO(), torch.arange(10).view(2, 5)
    mask = torch.ones_like(ids)
    mask[0, 3:] = 0
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # Of a way of exporting that torch calls old, and of constants, which are compared below.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                features,
                (ids, mask),
                file,  # type: ignore[arg-type]
                dynamo=False,
                opset_version=_OPSET,
                input_names=[IDS, MASK],
                output_names=[_FEATURES],
                dynamic_axes={name: {0: "texts", 1: "pieces"} for name in (IDS, MASK, _FEATURES)},
            )
    except Exception as error:  # The exporter raises all kinds of errors.
        raise _refusal(kind, (str(error).strip() or type(error).__name__).splitlines()[0]) from error
    return file.getvalue()


def _compare(encoder: Encoder, features: _Features, longest: int) -> None:
    """Compare the graph with the module, for other lengths than that of the sample: the exporter may keep a length."""
    rng, n_rows = np.random.default_rng(0), features.transformer.get_input_embeddings().num_embeddings
    for lengths in ([3, 1], [longest], [longest // 2 + 1, 7]):
        ids = [rng.integers(0, n_rows, length) for length in lengths]
        mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
        padded = np.zeros(mask.shape, dtype=np.int64)
        padded[mask] = np.concatenate(ids)
        with torch.no_grad():
            expected = features(torch.from_numpy(padded), torch.from_numpy(mask).long()).numpy()[mask]
        rows = encoder.rows(np.concatenate(ids), np.array(lengths))
        if np.abs(rows - expected).max() > _CLOSE * np.abs(expected).max():
            raise _refusal(encoder.source, f"for {max(lengths)} pieces its features are not those of torch")


def _refusal(what: str, reason: str) -> RemedyError:
    tested = ", ".join(f"{name} {release}" for name, release in EXPORTERS.items())
    installed = ", ".join(f"{name} {version(name)}" for name in EXPORTERS)
    return RemedyError(
        f"{what} cannot be converted by {installed}: {reason}",
        f"Try the versions that it is tested with: {tested}. Otherwise this transformer needs torch.",
    )
