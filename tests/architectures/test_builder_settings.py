"""Test that registered functions have the arguments of their configs, and pass them on."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any, get_type_hints

import numpy as np
import pytest

from spacy_tener.architectures.flat.flat import build_flat, build_flat_atssa, build_mect
from spacy_tener.architectures.flat.flat_config import AtssaConfig, FlatConfig, MectConfig
from spacy_tener.architectures.grn.grn import build_gated_relation_encoder, build_grn
from spacy_tener.architectures.grn.grn_config import GRNConfig
from spacy_tener.architectures.tener.tener import build_tener, build_transformer_encoder
from spacy_tener.architectures.tener.tener_config import TransformerConfig
from spacy_tener.embedders.transformer_embed import build_transformer_embed
from spacy_tener.embedders.transformer_embed_config import TransformerEmbedConfig
from spacy_tener.nn.shim import torch_shim


@pytest.mark.parametrize(
    ("build", "config"),
    [
        (build_tener, TransformerConfig),
        (build_transformer_encoder, TransformerConfig),
        (build_grn, GRNConfig),
        (build_gated_relation_encoder, GRNConfig),
        (build_flat, FlatConfig),
        (build_flat_atssa, AtssaConfig),
        (build_mect, MectConfig),
        (build_transformer_embed, TransformerEmbedConfig),
    ],
)
def test_builder_and_config_have_same_arguments(build: Callable[..., Any], config: type) -> None:
    parameters = inspect.signature(build).parameters
    # Compared as text, since pydantic's `Field` has no equality.
    types = {name: str(hint) for name, hint in get_type_hints(build, include_extras=True).items()}
    field_types = {name: str(hint) for name, hint in get_type_hints(config, include_extras=True).items()}
    fields = {field.name: field.default for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    models = [name for name in parameters if name not in fields]
    assert [*parameters] == [*models, *fields]
    assert {name: parameters[name].default for name in parameters} == {**dict.fromkeys(models), **fields}
    assert {name: types[name] for name in fields} == {name: field_types[name] for name in fields}


CALLS: list[tuple[Callable[..., Any], type, dict[str, Any]]] = [
    (build_tener, TransformerConfig, {"width": 24, "layers": 2, "heads": 3, "ff_width": 7, "dropout": 0.2}),
    (build_tener, TransformerConfig, {"attention_dropout": 0.3, "adapted": False, "scaled": False}),
    (build_transformer_encoder, TransformerConfig, {"width": 24, "layers": 2, "heads": 3, "ff_width": 7}),
    (build_transformer_encoder, TransformerConfig, {"dropout": 0.2, "attention_dropout": 0.3, "scaled": True}),
    (build_transformer_encoder, TransformerConfig, {"adapted": False}),
    (build_grn, GRNConfig, {"width": 24, "branches": [3], "relation": None, "dropout": 0.2}),
    (build_gated_relation_encoder, GRNConfig, {"width": 24, "branches": [3], "relation": None, "dropout": 0.2}),
    (build_flat, FlatConfig, {"width": 24, "layers": 2, "heads": 3, "ff_width": 7, "dropout": 0.2}),
    (build_flat, FlatConfig, {"attention_dropout": 0.3, "distances": ["hh", "tt"]}),
    (build_flat_atssa, AtssaConfig, {"width": 24, "layers": 2, "heads": 3, "ff_width": 7, "dropout": 0.2}),
    (build_flat_atssa, AtssaConfig, {"attention_dropout": 0.3, "selection": "none", "k": 1}),
    (build_flat_atssa, AtssaConfig, {"alpha": 2.0, "tau": 3.0, "penalty": 0.5}),
    (build_mect, MectConfig, {"width": 24, "layers": 2, "heads": 3, "ff_width": 7, "dropout": 0.2}),
    (build_mect, MectConfig, {"attention_dropout": 0.3, "random_attention": 9, "streams": dict}),
    (build_transformer_embed, TransformerEmbedConfig, {"frozen": True, "pooling": "first", "layers": [1, 2]}),
    (build_transformer_embed, TransformerEmbedConfig, {"dropout": 0.2, "window": 99, "overlap": 9, "cache": 7}),
    (build_transformer_embed, TransformerEmbedConfig, {"mixed_precision": True, "pieces": "all"}),
    (build_transformer_embed, TransformerEmbedConfig, {"layers": [3], "frozen_layers": 2}),
]


@pytest.mark.parametrize(("build", "config", "arguments"), CALLS)
def test_builder_passes_arguments_to_config(
    build: Callable[..., Any], config: type, arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Any] = []
    module: Any = sys.modules[build.__module__]

    def build_config(**fields: Any) -> Any:
        built.append(config(**fields))
        return built[-1]

    monkeypatch.setattr(module, config.__name__, build_config)
    build(**arguments)
    assert built == [config(**arguments)]


def test_builder_calls_cover_all_arguments() -> None:
    for build, config in {(build, config) for build, config, _ in CALLS}:
        tested = {name for other, _, arguments in CALLS if other is build for name in arguments}
        assert tested == {field.name for field in dataclasses.fields(config)}  # type: ignore[arg-type]


def test_builder_accepts_positional_and_keyword_arguments() -> None:
    by_position = build_transformer_encoder(16, 2, heads=2)
    by_name = build_transformer_encoder(heads=2, layers=2, width=16)
    for model in (by_position, by_name):
        model.initialize([np.zeros((1, 3), dtype="f")])
        module = torch_shim(model).module
        assert (module.config.width, len(module.layers), module.config.heads) == (16, 2, 2)


def test_builder_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(build_tener)) is build_tener
