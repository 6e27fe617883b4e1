"""The colour of a label: the same on every page, in displacy, and for every pipeline."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

# A seed for which the hues of the labels of common corpora are far apart; tests/pages lists these.
_SEED = 1123335291
_BITS = 0xFFFFFFFF


def label_hue(label: str) -> int:
    """Return the hue of a label in degrees, a hash of its name. `hue` of parts.js computes the same."""
    value = _SEED
    for char in label:
        value = ((value ^ ord(char)) * 0x01000193) & _BITS
    value ^= value >> 15
    value = (value * 0x2C1B3C6D) & _BITS
    value ^= value >> 12
    return value % 360


def displacy_options(labels: Iterable[str]) -> dict[str, Any]:
    """Return options of `displacy.render(..., style="ent")` that give labels the colours of this package's pages.

    labels: The labels of the texts. displacy looks colours up by upper-case label, so that labels which differ only in
        case share the colour of the last one.
    """
    return {"colors": {label.upper(): f"hsl({label_hue(label)}, 75%, 86%)" for label in labels}}
