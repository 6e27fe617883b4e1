"""The colour of a label: the same on every page of a pipeline, and in displacy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

_GOLDEN_ANGLE = 137.508
_FIRST_HUE = 210


def label_hues(labels: Iterable[str]) -> dict[str, int]:
    """Return the hue of each label in degrees, by its number among the sorted labels of a pipeline.

    Steps of the golden angle keep the hues of any number of labels apart. `hue` of parts.js computes the same.
    """
    numbered = enumerate(sorted(set(labels)))
    return {label: int(number * _GOLDEN_ANGLE + _FIRST_HUE) % 360 for number, label in numbered}


def displacy_options(labels: Iterable[str]) -> dict[str, Any]:
    """Return options of `displacy.render(..., style="ent")` that give labels the colours of this package's pages.

    labels (Iterable[str]): All labels of the pipeline. displacy looks colours up by upper-case label, so that labels
        which differ only in case share the colour of the last one.
    """
    return {"colors": {label.upper(): f"hsl({hue}, 75%, 86%)" for label, hue in label_hues(labels).items()}}
