"""Trained pipelines with a transformer, converted to run without torch, and what they find beside the old ones."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from io import BytesIO
from typing import Any, Literal

import numpy as np
import torch
from spacy.language import Language
from thinc.api import Model
from torch import Tensor, nn

from ..embedders.onnx_embed import build_onnx_embed
from ..embedders.transformer_embed_torch import PretrainedTransformer, mean_of_layers
from ..errors import RemedyError, check_package
from ..features.pieces import WordPieces
from ..nn.shim import EmbedModel, torch_shim
from ..onnx.edits import to_int8
from ..onnx.encoder import IDS, MASK, REQUIREMENT, Encoder
from ..onnx.sources import make_encoder, onnx_encoder
from ..pipeline.doc_entities import found_entities
from ..requirements import TRANSFORMER, add_requirements

_SHARED = "transformer", "curated_transformer"
"""Factories of components whose transformer others share."""
Precision = Literal["float32", "int8"]
_SETTINGS = "pooling", "window", "overlap"
"""Settings that both embedders have."""
EXPORTERS = {"torch": "2.13", "transformers": "4.53", "onnx": "1.23"}
"""The versions that the conversion is tested with."""
_OPSET = 17
_FEATURES = "features"
_CLOSE = 1e-3
"""The most by which features may differ from torch's, as a share of the largest one."""


def to_onnx(nlp: Language, precision: Precision) -> None:
    """Let ONNX Runtime compute all of a pipeline's transformers, in place, of disabled components too."""
    shared = [name for name in nlp.component_names if nlp.get_pipe_meta(name).factory in _SHARED]
    if shared:
        raise RemedyError(
            f"The transformer of '{shared[0]}', which components share, cannot be converted",
            "Train with the overlay transformer or transformer-frozen instead of transformer-shared.",
        )
    pipes: dict[str, Any] = {
        name: pipe for name, pipe in nlp.components if isinstance(getattr(pipe, "model", None), Model)
    }
    found = [(pipe, node) for pipe in pipes.values() for node in pipe.model.walk() if node.name == "transformer_embed"]
    if not found:
        raise RemedyError("The pipeline has no transformer", "There is nothing to convert: it needs no torch.")
    for name in (*EXPORTERS, "onnxruntime"):
        remedy = f"Install what it takes by `pip install onnx '{REQUIREMENT}'`."
        check_package(name, "To convert a transformer takes", remedy)
    for pipe, node in found:
        embed = to_onnx_embed(node, precision)
        pipe.model.replace_node(node, embed)
        pipe.model = embed if pipe.model is node else pipe.model
    for name in pipes:
        config = nlp.get_pipe_config(name)
        config["model"] = _converted(config["model"])
    add_requirements(nlp, replaced=TRANSFORMER)


def _converted(section: Any) -> Any:
    """Return a section of a config with each embedder of a transformer replaced."""
    if not isinstance(section, Mapping):
        return section
    if section.get("@architectures") == "spacy_tener.TransformerEmbed.v1":
        encoder = {"@misc": "spacy_tener.OnnxEncoder.v1", **{name: section[name] for name in _SETTINGS}}
        return {"@architectures": "spacy_tener.OnnxEmbed.v1", "width": None, "encoder": encoder}
    return {name: _converted(part) for name, part in section.items()}


def to_onnx_embed(model: EmbedModel, precision: Precision) -> EmbedModel:
    """Return an `OnnxEmbed` with the features of a `TransformerEmbed`."""
    module: PretrainedTransformer = torch_shim(model).module
    settings = {name: getattr(module.config, name) for name in _SETTINGS}
    embedder = build_onnx_embed(onnx_encoder(**settings), width=None)
    embedder.attrs["features"].set(_encoder_of(module, torch_shim(model).sizes, precision))
    embedder.set_dim("nO", model.get_dim("nO"))
    return embedder


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
            about={
                "name": f"{kind}, {precision}",
                "origin": parts.get("origin") or "the transformer of a trained pipeline",
                "licence": parts.get("licence") or "unknown",
            },
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


def changed_entities(old: Language, new: Language, texts: Sequence[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many entities of texts two pipelines both find, and the others: which one finds it, label, text."""
    same, changed = 0, []
    found = (found_entities(nlp, nlp.pipe(map(nlp.tokenizer, texts))) for nlp in (old, new))
    for text, *sides in zip(texts, *found, strict=True):
        before, after = ({(entity.start, entity.end, entity.label) for entity in side} for side in sides)
        same += len(before & after)
        for start, end, label in sorted(before ^ after):
            changed.append(("old" if (start, end, label) in before else "new", label, text[start:end]))
    return same, changed
