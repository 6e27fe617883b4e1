"""Settings of `tener_ner`, with their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from ..errors import check_choice
from .units import Alignment, View

CHARS_KEY = "tener_ner_chars"

TEMPERATURE = "temperature"
"""Key of a component's `cfg`: the divisor of all scores of the CRF, fitted by `spacy tener calibrate`."""

TOKEN_LENGTH = "token_length"
"""Key of a component's `cfg`: the mean length in characters of the tokens that it was trained on."""

LABELS_OVER_LINES, LABELS_WITH_ORNAMENTS = "labels_over_lines", "labels_with_ornaments"
"""Keys of a component's `cfg`: the labels of training entities with a line break in them, or an ornament at an edge."""

LEARNED = {TEMPERATURE, TOKEN_LENGTH, LABELS_OVER_LINES, LABELS_WITH_ORNAMENTS}
"""Keys of a component's `cfg` that belong to its weights."""

STATE = {"labels", *LEARNED}
"""Keys of a component's `cfg` that training or calibration sets, and not the config."""


@dataclass(frozen=True)
class NERSettings:
    """Validated settings of the component. `make_tener_ner` describes them."""

    view: View = "tokens"
    alignment_mode: Alignment = "expand"
    window: int = 200
    overlap: int = 40
    max_units: int = 4096
    incorrect_spans_key: str | None = None
    chars_key: str | None = CHARS_KEY
    spans_key: str | None = None
    threshold: float | dict[str, float] = 0.0

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> NERSettings:
        """Return the settings in a component's `cfg`."""
        settings = {name: value for name, value in cfg.items() if name not in STATE}
        if not settings.keys() <= _TYPES.keys():
            raise ValueError(
                f"The cfg of tener_ner has no setting {', '.join(sorted(settings.keys() - _TYPES.keys()))}. Use: "
                f"{', '.join(_TYPES)}."
            )
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
        for name, kind in _TYPES.items():
            if not isinstance(getattr(self, name), kind):
                wanted = getattr(kind, "__name__", kind)  # `int`, or `str | None`
                raise ValueError(f"The setting '{name}' of tener_ner is {getattr(self, name)!r}: it must be {wanted}.")
        check_choice("view of tener_ner", self.view, get_args(View))
        check_choice("alignment_mode of tener_ner", self.alignment_mode, get_args(Alignment))
        if self.overlap < 1 or self.window <= 2 * self.overlap:
            raise ValueError(
                f"The setting 'window' of tener_ner is {self.window} and 'overlap' is {self.overlap}: a window must be "
                "longer than twice its overlap, and the overlap at least 1."
            )
        if self.max_units < self.window:
            raise ValueError(
                f"The setting 'max_units' of tener_ner is {self.max_units}: it must be at least the window, "
                f"{self.window}, since a batch holds one window or more."
            )
        if self.spans_key and self.spans_key == self.chars_key:
            raise ValueError(
                f"The settings 'spans_key' and 'chars_key' of tener_ner are both {self.spans_key!r}, but each "
                "writes a group of its own. Use two keys."
            )
        thresholds = self.threshold.values() if isinstance(self.threshold, dict) else [self.threshold]
        if not all(isinstance(threshold, int | float) and 0.0 <= threshold <= 1.0 for threshold in thresholds):
            raise ValueError(
                f"The setting 'threshold' of tener_ner is {self.threshold}. Use a probability, from 0 to 1, or one for "
                "each label."
            )


# What `isinstance` knows of the fields' types: choices are strings, and a number may be an integer.
_TYPES = {**get_type_hints(NERSettings), "view": str, "alignment_mode": str, "threshold": int | float | dict}
