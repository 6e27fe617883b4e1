"""Arguments that are written once, as the fields of a config."""

from __future__ import annotations

import inspect
import pickle
from dataclasses import dataclass

import pytest
from confection import ConfigValidationError
from spacy.util import registry

from spacy_tener.models.settings import expand_config


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a house.

    rooms: How many rooms
        there are.
    floors: How many floors; None for a tower.
    lift: Whether there is a lift.

    A last remark.
    """

    rooms: int = 3
    floors: int | None = None
    lift: bool = False


@expand_config(fixed={"lift": True}, rooms=7)
def build_house(garden: str = "front", *, config: Sizes, colour: str = "red") -> dict:
    """Build a house.

    garden (str): Where the garden is.
    """
    return {"garden": garden, "colour": colour, "config": config}


def test_fields_are_arguments_in_the_config_s_place_with_their_types_and_defaults():
    shown = str(inspect.signature(build_house))
    assert shown == "(garden: str = 'front', rooms: int = 7, floors: int | None = None, colour: str = 'red') -> dict"


def test_fields_with_other_defaults_come_in_the_order_of_these():
    @expand_config(floors=2, rooms=7)
    def build(config: Sizes) -> Sizes:
        return config

    assert list(inspect.signature(build).parameters) == ["floors", "rooms", "lift"]
    assert build(5, 6) == Sizes(floors=5, rooms=6)


def test_the_builder_gets_the_config():
    assert build_house() == {"garden": "front", "colour": "red", "config": Sizes(rooms=7, lift=True)}
    house = build_house("back", 1, floors=2, colour="blue")
    assert house == {"garden": "back", "colour": "blue", "config": Sizes(rooms=1, floors=2, lift=True)}


@pytest.mark.parametrize("wrong", [{"lift": False}, {"config": Sizes()}, {"room": 3}])
def test_what_is_no_argument_is_refused_by_its_name(wrong):
    with pytest.raises(TypeError, match=f"'{next(iter(wrong))}'"):
        build_house(**wrong)


def test_the_docstring_ends_with_what_the_config_says_about_each_field():
    assert build_house.__doc__.splitlines() == [
        "Build a house.",
        "",
        "garden (str): Where the garden is.",
        "rooms (int): How many rooms there are.",
        "floors (int | None): How many floors; None for a tower.",
    ]


def test_a_field_without_documentation_is_an_error():
    @dataclass
    class Silent:
        """Nothing about rooms."""

        rooms: int = 3

    def build(*, config: Silent) -> int: ...

    build.__annotations__ = {"config": Silent, "return": int}
    with pytest.raises(AssertionError, match="Silent does not document rooms"):
        expand_config()(build)


def test_spacy_fills_and_validates_a_config_by_the_fields():
    name = "spacy_tener.AdaptedTransformerEncoder.v1"
    assert registry.fill({"model": {"@architectures": name, "heads": 2}})["model"] == {
        "@architectures": name,
        "width": 128,
        "layers": 1,
        "heads": 2,
        "ff_width": None,
        "dropout": 0.15,
        "attention_dropout": None,
        "scaled": False,
        "norm": "post",
        "key_projection": False,
        "key_position": False,
    }
    with pytest.raises(ConfigValidationError, match="adapted"):
        registry.resolve({"model": {"@architectures": name, "adapted": False}})


def test_a_builder_can_be_pickled():
    assert pickle.loads(pickle.dumps(build_house)) is build_house
