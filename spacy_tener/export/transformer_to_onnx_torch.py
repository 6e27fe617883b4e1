"""Convert a trained pipeline's transformer to ONNX, so that the pipeline runs without torch, for `trim --onnx`.

`to_onnx` replaces each `TransformerEmbed` layer by an `OnnxEmbed` layer that computes the same features.
`changed_entities` compares the predictions before and after the conversion.
"""

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
from ..errors import UserError, check_package
from ..features.subwords import TokenizerJson
from ..nn.shim import EmbedModel, torch_shim
from ..onnx.edits import to_int8
from ..onnx.encoder import IDS, MASK, REQUIREMENT, Encoder
from ..onnx.sources import make_encoder, onnx_encoder
from ..pipeline.finding import found_entities
from ..requirements import TRANSFORMER, add_requirements

# Factories for shared transformers, which `to_onnx` does not support.
_SHARED = "transformer", "curated_transformer"
Precision = Literal["float32", "int8"]
# Settings that `TransformerEmbed` and `OnnxEmbed` have in common.
_SETTINGS = "pooling", "window", "overlap"
# Package versions with which the conversion is tested.
EXPORTERS = {"torch": "2.13", "transformers": "4.53", "onnx": "1.23"}
_OPSET = 17
_FEATURES = "features"
# Maximum difference between the features of ONNX and torch, relative to torch's largest absolute feature.
_MAX_ERROR = 1e-3


def to_onnx(nlp: Language, precision: Precision) -> None:
    """Replace all transformers in a pipeline by ONNX models, in place. Disabled components are converted, too.

    precision (str): Weight precision: "float32" or "int8".
    """
    shared = [name for name in nlp.component_names if nlp.get_pipe_meta(name).factory in _SHARED]
    if shared:
        raise UserError(
            f"'{shared[0]}' is a shared transformer, which cannot be converted",
            "Train with the overlay transformer or transformer-frozen instead of transformer-shared.",
        )
    pipes: dict[str, Any] = {
        name: pipe for name, pipe in nlp.components if isinstance(getattr(pipe, "model", None), Model)
    }
    found = [(pipe, node) for pipe in pipes.values() for node in pipe.model.walk() if node.name == "transformer_embed"]
    if not found:
        raise UserError(
            "The pipeline has no transformer", "There is nothing to convert: the pipeline already runs without torch."
        )
    for name in (*EXPORTERS, "onnxruntime"):
        fix = f"Install the packages with `pip install onnx '{REQUIREMENT}'`."
        check_package(name, "Converting a transformer requires", fix)
    for pipe, node in found:
        embed = to_onnx_embed(node, precision)
        pipe.model.replace_node(node, embed)
        pipe.model = embed if pipe.model is node else pipe.model
    for name in pipes:
        config = nlp.get_pipe_config(name)
        config["model"] = _converted(config["model"])
    add_requirements(nlp, replaced=TRANSFORMER)


def _converted(section: Any) -> Any:
    """Return a config section, with `OnnxEmbed` instead of `TransformerEmbed`."""
    if not isinstance(section, Mapping):
        return section
    if section.get("@architectures") == "spacy_tener.TransformerEmbed.v1":
        encoder = {"@misc": "spacy_tener.OnnxEncoder.v1", **{name: section[name] for name in _SETTINGS}}
        return {"@architectures": "spacy_tener.OnnxEmbed.v1", "width": None, "encoder": encoder}
    return {name: _converted(part) for name, part in section.items()}


def to_onnx_embed(model: EmbedModel, precision: Precision) -> EmbedModel:
    """Convert a `TransformerEmbed` layer to an `OnnxEmbed` layer."""
    module: PretrainedTransformer = torch_shim(model).module
    settings = {name: getattr(module.config, name) for name in _SETTINGS}
    embedder = build_onnx_embed(onnx_encoder(**settings), width=None)
    embedder.attrs["features"].set(_encoder_of(module, torch_shim(model).sizes, precision))
    embedder.set_dim("nO", model.get_dim("nO"))
    return embedder


class _Features(nn.Module):
    """The part of a transformer that is exported, which computes the mean of selected layers.

    The inputs are subword token ids and an attention mask. *Shape:* (texts, subwords) each. The output is the features.
    *Shape:* (texts, subwords, width)
    """

    def __init__(self, transformer: Any, layers: int | Sequence[int]) -> None:
        super().__init__()
        self.transformer = transformer
        self.layers = layers

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        return mean_of_layers(self.transformer, ids, mask, self.layers)


def _encoder_of(module: PretrainedTransformer, parts: dict[str, Any], precision: Precision) -> Encoder:
    tokenizer, config = module.subword_tokenizer, module.config
    model_type = json.loads(parts["transformer"])["model_type"]
    features = _Features(module.transformer, config.layers).eval()
    data = _export(features, model_type)
    max_length = tokenizer.size + len(tokenizer.before) + len(tokenizer.after)

    def encoder(graph: bytes) -> Encoder:
        return make_encoder(
            graph,
            TokenizerJson(parts["tokenizer"]),
            inputs={IDS: IDS, MASK: MASK},
            outputs=[_FEATURES],
            about={
                "name": f"{model_type}, {precision}",
                "origin": parts.get("origin") or "the transformer of a trained pipeline",
                "licence": parts.get("licence") or "unknown",
            },
            window=max_length,
            overlap=tokenizer.overlap,
            pooling=config.pooling,
            source=f"The {model_type} in ONNX",
        )

    _check_output(encoder(data), features, max_length)
    return encoder(to_int8(data) if precision == "int8" else data)


def _export(features: _Features, model_type: str) -> bytes:
    file, ids = BytesIO(), torch.arange(10).view(2, 5)
    mask = torch.ones_like(ids)
    mask[0, 3:] = 0
    try:
        with warnings.catch_warnings(), torch.no_grad():
            # torch warns about the deprecated exporter, and about values that are traced as constants. The warnings can
            # be ignored, because `_check_output` detects wrong constants.
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
    except Exception as error:  # the exporter raises various exceptions
        raise _conversion_error(model_type, (str(error).strip() or type(error).__name__).splitlines()[0]) from error
    return file.getvalue()


def _check_output(encoder: Encoder, features: _Features, max_length: int) -> None:
    """Raise an error if the features that ONNX and torch compute for random inputs differ.

    The inputs have several lengths, because tracing can store the example input's length as a constant.
    """
    rng, n_rows = np.random.default_rng(0), features.transformer.get_input_embeddings().num_embeddings
    for lengths in ([3, 1], [max_length], [max_length // 2 + 1, 7]):
        ids = [rng.integers(0, n_rows, length) for length in lengths]
        mask = np.arange(max(lengths)) < np.array(lengths)[:, None]
        padded = np.zeros(mask.shape, dtype=np.int64)
        padded[mask] = np.concatenate(ids)
        with torch.no_grad():
            expected = features(torch.from_numpy(padded), torch.from_numpy(mask).long()).numpy()[mask]
        rows = encoder.rows(np.concatenate(ids), np.array(lengths))
        if np.abs(rows - expected).max() > _MAX_ERROR * np.abs(expected).max():
            raise _conversion_error(
                encoder.source,
                f"for an input of {max(lengths)} subword tokens, the outputs of the ONNX model differ from those of "
                "torch",
            )


def _conversion_error(source: str, reason: str) -> UserError:
    tested = ", ".join(f"{name} {release}" for name, release in EXPORTERS.items())
    installed = ", ".join(f"{name} {version(name)}" for name in EXPORTERS)
    return UserError(
        f"{source} cannot be converted with {installed}: {reason}",
        f"Install the versions with which the conversion was tested: {tested}. If the error persists, use this "
        "transformer with torch.",
    )


def changed_entities(old: Language, new: Language, texts: Sequence[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """Compare the entities that two pipelines find in texts.

    RETURNS (Tuple[int, List[Tuple[str, str, str]]]): The number of entities that both pipelines find, and a list with
        all other entities. Each list item contains "old" or "new" (the pipeline that finds the entity), the label, and
        the entity's text.
    """
    same, changed = 0, []
    found = (found_entities(nlp, nlp.pipe(map(nlp.tokenizer, texts))) for nlp in (old, new))
    for text, *pair in zip(texts, *found, strict=True):
        before, after = ({(entity.start, entity.end, entity.label) for entity in entities} for entities in pair)
        same += len(before & after)
        for start, end, label in sorted(before ^ after):
            changed.append(("old" if (start, end, label) in before else "new", label, text[start:end]))
    return same, changed
