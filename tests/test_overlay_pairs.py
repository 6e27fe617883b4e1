"""All pairs of overlays, in both orders: either they are compatible, or the error suggests a valid combination.

The configs are merged and checked, but no pipelines are created.
"""

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
WITHOUT = re.compile(r"These overlays cannot be combined in any order\. Remove (\S+)(?: or (\S+))?\.")


def check_functions(config: Config) -> Config:
    """Check the names and the arguments of functions, without calling them."""
    assert not get_sourced_components(config)
    for name in config["nlp"]["pipeline"]:
        component: dict[str, Any] = config["components"][name]
        registry.fill({name: {key: part for key, part in component.items() if isinstance(part, dict)}})
    return config


def cache_results(apply_overlays: Callable[..., Config]) -> Callable[..., Config]:
    """Cache merged configs: each pair of overlays is also tried as the suggested fix of another pair."""
    results: dict[tuple[str, ...], Config | ConfigError] = {}

    def cached(config: Config, chosen: Mapping[str, Config], base: str = "") -> Config:
        names = (*chosen,)
        if names not in results:
            try:
                results[names] = apply_overlays(config, chosen, base)
            except ConfigError as error:
                results[names] = error
        result = results[names]
        if isinstance(result, ConfigError):
            raise result
        return result

    return cached


def suggested_fix(base: str, *names: str) -> str | None:
    try:
        compose(base, names)
    except ConfigError as error:
        return error.fix
    return None


@pytest.mark.parametrize("base", ["weibo", "wnut17"])
def test_overlay_pair_is_valid_or_error_suggests_fix(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlays, "fill", check_functions)
    monkeypatch.setattr(overlays, "read_config", cache(overlays.read_config))
    monkeypatch.setattr(overlays, "_apply_overlays", cache_results(overlays._apply_overlays))
    alone = {name for name in NAMES if suggested_fix(base, name) is None}
    fixes = {pair: suggested_fix(base, *pair) for pair in permutations(NAMES, 2)}
    assert {None} < set(fixes.values())
    for pair, fix in fixes.items():
        if fix is None:
            continue
        if fixes[pair[::-1]] is None:
            order = ORDER.fullmatch(fix)
            assert order, f"{pair}: {fix}"
            assert order.groups() == pair[::-1]
        elif alone.intersection(pair):
            without = WITHOUT.fullmatch(fix)
            assert without, f"{pair}: {fix}"
            assert {*filter(None, without.groups())} == {name for name, other in (pair, pair[::-1]) if other in alone}


def test_error_suggests_order_of_three_overlays() -> None:
    for order in ("chars-shape glove static", "glove static chars-shape", "static glove chars-shape"):
        assert suggested_fix("wnut17", *order.split()) == "Use them in the order glove chars-shape static."


def test_misspelled_overlay_error_suggests_similar_name() -> None:
    fix = suggested_fix("weibo", "flat-atsa", "lac")
    assert fix
    assert fix.startswith("Did you mean flat-atssa")
