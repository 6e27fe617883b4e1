"""Settings of `tener_ner`, with their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pydantic.dataclasses import dataclass

from ..errors import check_choice
from ..validation import STRICT, SettingError, Size, name_errors
from .units import Alignment, View

CHARS_KEY = "tener_ner_chars"

TEMPERATURE = "temperature"
"""Key of a component's `cfg`: the divisor of all scores of the CRF, fitted by `spacy tener calibrate`."""

TOKEN_LENGTH = "token_length"
"""Key of a component's `cfg`: the mean length in characters of the tokens that it was trained on."""

LABELS_OVER_LINES, LABELS_WITH_ORNAMENTS = "labels_over_lines", "labels_with_ornaments"
"""Keys of a component's `cfg`: the labels of training entities with a line break in them, or an ornament at an edge."""

LATIN_EDGES = "latin_edges"
"""Key of a component's `cfg`: of each label, how many edges of training entities are within a Latin word, and how many
at the edge of one."""

LEARNED = {TEMPERATURE, TOKEN_LENGTH, LABELS_OVER_LINES, LABELS_WITH_ORNAMENTS, LATIN_EDGES}
"""Keys of a component's `cfg` that belong to its weights."""

STATE = {"labels", *LEARNED}
"""Keys of a component's `cfg` that training or calibration sets, and not the config."""


@dataclass(frozen=True, config=STRICT)
class NERSettings:
    """Validated settings of the component. `make_tener_ner` describes them."""

    view: View = "tokens"
    alignment_mode: Alignment = "expand"
    window: Size = 200
    overlap: Size = 40
    max_units: Size = 4096
    incorrect_spans_key: str | None = None
    chars_key: str | None = CHARS_KEY
    spans_key: str | None = None
    threshold: float | dict[str, float] = 0.0

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> NERSettings:
        """Return the settings in a component's `cfg`."""
        settings = {name: value for name, value in cfg.items() if name not in STATE}
        for name in settings:
            check_choice("setting of tener_ner", name, [field.name for field in fields(cls)])
        with name_errors("tener_ner"):
            return cls(**settings)

    @property
    def asks_probabilities(self) -> bool:
        """True if the component needs probabilities to process a Doc."""
        return bool(self.spans_key or self.threshold)

    def thresholds(self, labels: Sequence[str]) -> list[float]:
        """Return the minimum probability of entities of each label."""
        if not isinstance(self.threshold, dict):
            return [self.threshold] * len(labels)
        for label in self.threshold:
            check_choice("label in the setting 'threshold' of tener_ner", label, labels)
        return [self.threshold.get(label, 0.0) for label in labels]

    def __post_init__(self) -> None:
        if self.window <= 2 * self.overlap:
            raise SettingError(f"window must be longer than twice the overlap, {self.overlap}; got {self.window}")
        if self.max_units < self.window:
            raise SettingError(f"max_units must be at least the window, {self.window}; got {self.max_units}")
        if self.spans_key and self.spans_key == self.chars_key:
            raise SettingError(f"spans_key and chars_key must be two groups of doc.spans; both are {self.spans_key!r}")
        thresholds = self.threshold.values() if isinstance(self.threshold, dict) else [self.threshold]
        if not all(0.0 <= threshold <= 1.0 for threshold in thresholds):
            raise SettingError(f"threshold must be from 0 to 1, alone or for each label; got {self.threshold}")
