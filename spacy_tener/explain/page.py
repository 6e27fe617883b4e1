"""An explanation as one page: `page.html` with its style, its script and the data inside."""

from __future__ import annotations

import base64
import html
import json
import re
from importlib.resources import files
from typing import Any

import numpy as np

from .encoders import HeatMap

_PLACE = re.compile(r"\{\{(\w+)\}\}")


def page(data: dict[str, Any], *, title: str) -> str:
    """data: of an explanation, with its maps as `packed` makes them."""
    lang = data["pipeline"]["lang"]
    parts = {
        "title": html.escape(title),
        "lang": html.escape(lang or "en"),
        "style": _file("page.css"),
        "script": _file("page.js"),
        # Inside of a script element nothing but `<` may end it.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    # In one pass, so that what is filled in is not read as a place to fill in.
    return _PLACE.sub(lambda place: parts[place[1]], _file("page.html"))


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf8")


def packed(found: HeatMap) -> dict[str, Any]:
    """A map with its weights as bytes: 0 for 0, 1 to 255 for what lies between that and the largest."""
    largest = float(found.weights.max(initial=0.0))
    scaled = np.ceil(found.weights / (largest or 1.0) * 255).astype(np.uint8)
    return {
        "kind": found.kind,
        "layer": found.layer,
        "stream": found.stream,
        "shape": list(found.weights.shape),
        "largest": round(largest, 6),
        "weights": base64.b64encode(scaled.tobytes()).decode("ascii"),
        "kept": None if found.kept is None else found.kept.tolist(),
    }


def listed(found: HeatMap) -> dict[str, Any]:
    """A map with its weights as numbers."""
    return {
        "kind": found.kind,
        "layer": found.layer,
        "stream": found.stream,
        "weights": np.round(found.weights.astype(np.float64), 4).tolist(),
        "kept": None if found.kept is None else found.kept.tolist(),
    }
