"""Arguments of architectures: what spaCy makes of them, and where they go."""

from __future__ import annotations

import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from typing import Any

import pytest

from spacy_tener.models import encoders, lattice
from spacy_tener.settings import (
    AtssaConfig,
    FlatConfig,
    GRNConfig,
    MectConfig,
    TransformerConfig,
)


class MadeError(Exception):
    """A config was made of these settings."""


@pytest.mark.parametrize(
    ("build", "config"),
    [
        (encoders.build_tener, TransformerConfig),
        (encoders.build_transformer_encoder, TransformerConfig),
        (encoders.build_grn, GRNConfig),
        (encoders.build_gated_relation_encoder, GRNConfig),
        (lattice.build_flat, FlatConfig),
        (lattice.build_flat_atssa, AtssaConfig),
        (lattice.build_mect, MectConfig),
    ],
)
def test_each_argument_sets_the_field_of_its_name_and_has_its_default(
    build: Callable[..., Any], config: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(**settings: object) -> None:
        raise MadeError(settings)

    monkeypatch.setattr(sys.modules[build.__module__], config.__name__, make)
    defaults = {field.name: field.default for field in dataclasses.fields(config)}  # type: ignore[arg-type]
    parameters = inspect.signature(build).parameters
    argument_defaults = {name: parameter.default for name, parameter in parameters.items() if name in defaults}
    arguments = {name: object() for name in argument_defaults}
    with pytest.raises(MadeError) as raised:
        inspect.unwrap(build)(**arguments)
    assert raised.value.args == (arguments,)
    assert argument_defaults == {name: defaults[name] for name in argument_defaults}


def test_a_builder_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(encoders.build_tener)) is encoders.build_tener
