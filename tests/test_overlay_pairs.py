"""All pairs of overlays, in both orders: they work, or the message names what does. Nothing is created or trained."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import permutations
from typing import Any

import pytest
from spacy.util import get_sourced_components, registry
from thinc.api import Config

from spacy_tener.training import overlays
from spacy_tener.training.config_files import OVERLAYS, ConfigError, names_in
from spacy_tener.training.overlays import compose

pytestmark = pytest.mark.integration

NAMES = names_in(OVERLAYS)
ORDER = re.compile(r"Use them in the order (\S+) (\S+)\.")
WITHOUT = re.compile(r"They work in no order\. Leave out (\S+)(?: or (\S+))?\.")


def check_functions(config: Config) -> Config:
    """Check the names and the arguments of functions, without calling them."""
    assert not get_sourced_components(config)
    for name in config["nlp"]["pipeline"]:
        component: dict[str, Any] = config["components"][name]
        registry.fill({name: {key: part for key, part in component.items() if isinstance(part, dict)}})
    return config


def laid_once(lay: Callable[..., Config]) -> Callable[..., Config]:
    """Cache merged configs: each pair of overlays is also tried as the suggested fix of another pair."""
    results: dict[tuple[str, ...], Config | ConfigError] = {}

    def laid(config: Config, chosen: Mapping[str, Config], base: str = "") -> Config:
        names = (*chosen,)
        if names not in results:
            try:
                results[names] = lay(config, chosen, base)
            except ConfigError as error:
                results[names] = error
        result = results[names]
        if isinstance(result, ConfigError):
            raise result
        return result

    return laid


def remedy_for(base: str, *names: str) -> str | None:
    try:
        compose(base, names)
    except ConfigError as error:
        return error.remedy
    return None


@pytest.mark.parametrize("base", ["weibo", "wnut17"])
def test_a_pair_works_or_is_told_what_does(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlays, "fill", check_functions)
    monkeypatch.setattr(overlays, "read_config", cache(overlays.read_config))
    monkeypatch.setattr(overlays, "_apply_overlays", laid_once(overlays._apply_overlays))
    alone = {name for name in NAMES if remedy_for(base, name) is None}
    remedies = {pair: remedy_for(base, *pair) for pair in permutations(NAMES, 2)}
    assert {None} < set(remedies.values())
    for pair, remedy in remedies.items():
        if remedy is None:
            continue
        if remedies[pair[::-1]] is None:
            order = ORDER.fullmatch(remedy)
            assert order, f"{pair}: {remedy}"
            assert order.groups() == pair[::-1]
        elif alone.intersection(pair):
            without = WITHOUT.fullmatch(remedy)
            assert without, f"{pair}: {remedy}"
            assert {*filter(None, without.groups())} == {name for name, other in (pair, pair[::-1]) if other in alone}


def test_three_are_told_their_order() -> None:
    for order in ("chars-shape glove static", "glove static chars-shape", "static glove chars-shape"):
        assert remedy_for("wnut17", *order.split()) == "Use them in the order glove chars-shape static."


def test_a_wrong_name_is_told_a_similar_one_also_beside_another() -> None:
    remedy = remedy_for("weibo", "flat-atsa", "lac")
    assert remedy
    assert remedy.startswith("Did you mean flat-atssa")
