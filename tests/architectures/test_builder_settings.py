"""Arguments of architectures: what spaCy makes of them, and where they go."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from spacy_tener.architectures.flat.flat import build_flat, build_flat_atssa, build_mect
from spacy_tener.architectures.flat.flat_config import AtssaConfig, FlatConfig, MectConfig
from spacy_tener.architectures.grn.grn import build_gated_relation_encoder, build_grn
from spacy_tener.architectures.grn.grn_config import GRNConfig
from spacy_tener.architectures.tener.tener import build_tener, build_transformer_encoder
from spacy_tener.architectures.tener.tener_config import TransformerConfig
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
    ],
)
def test_the_fields_of_a_config_are_arguments_with_their_defaults(build: Callable[..., Any], config: type) -> None:
    parameters = inspect.signature(build).parameters
    fields = {field.name: field.default for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    models = [name for name in parameters if name not in fields]
    assert [*parameters] == [*models, *fields]
    assert {name: parameters[name].default for name in parameters} == {**dict.fromkeys(models), **fields}


def test_arguments_reach_the_config_by_position_and_by_name() -> None:
    by_position = build_transformer_encoder(16, 2, heads=2)
    by_name = build_transformer_encoder(heads=2, layers=2, width=16)
    for model in (by_position, by_name):
        model.initialize([np.zeros((1, 3), dtype="f")])
        module = torch_shim(model).module
        assert (module.config.width, len(module.layers), module.config.heads) == (16, 2, 2)


def test_a_builder_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(build_tener)) is build_tener
