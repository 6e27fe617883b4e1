"""Settings of `tener_ner`, with their checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ..errors import check_choice
from ..validation import STRICT, SettingError, name_errors
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

TEXT_LENGTH = "text_length"
"""Key of a component's `cfg`: the length in units of which nine of ten training texts were not longer."""

TEXT_SENTENCES = "text_sentences"
"""Key of a component's `cfg`: the number of sentences of which nine of ten training texts had no more."""

LONGEST_WINDOW, USUAL_CONTEXT = 200, 8
"""The most units of a window where none are set, and the units of context where a sentence must be cut."""
_SHORTEST_CONTEXTS = 4
"""The least units of a window, in units of context: at least half of them are its core."""

READ_AS_TRAINED = TEXT_LENGTH, TEXT_SENTENCES

LEARNED = {*READ_AS_TRAINED, TEMPERATURE, TOKEN_LENGTH, LABELS_OVER_LINES, LABELS_WITH_ORNAMENTS, LATIN_EDGES}
"""Keys of a component's `cfg` that belong to its weights."""

STATE = {"labels", *LEARNED}
"""Keys of a component's `cfg` that training or calibration sets, and not the config."""


def settings_in(cfg: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a component's `cfg` that `NERSettings` are made of."""
    return {name: value for name, value in cfg.items() if name in READ_AS_TRAINED or name not in STATE}


@dataclass(frozen=True, config=STRICT)
class NERSettings:
    """Validated settings of the component. `make_tener_ner` describes them."""

    view: View = "tokens"
    alignment_mode: Alignment = "expand"
    window: PositiveInt | None = None
    overlap: PositiveInt | None = None
    max_units: PositiveInt = 4096
    incorrect_spans_key: str | None = None
    chars_key: str | None = CHARS_KEY
    spans_key: str | None = None
    threshold: float | dict[str, float] = 0.0
    text_length: int | None = None
    text_sentences: int | None = None
    """Both learned, not set: see `TEXT_LENGTH` and `TEXT_SENTENCES`."""

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> NERSettings:
        """Return the settings in a component's `cfg`."""
        settings = settings_in(cfg)
        for name in settings:
            check_choice("setting of tener_ner", name, [field.name for field in fields(cls)])
        with name_errors("tener_ner"):
            return cls(**settings)

    def to_cfg(self) -> dict[str, Any]:
        """Return the settings as a component's `cfg` has them."""
        return {name: value for name, value in asdict(self).items() if name not in STATE}

    @property
    def training_window(self) -> int:
        """The most units of a training text that are read at once."""
        return self.window or LONGEST_WINDOW

    @property
    def reading_window(self) -> int:
        """The most units of a text that are read at once: as many as most training texts have, unless it is set."""
        if self.window is not None or self.text_length is None:
            return self.training_window
        shortest = _SHORTEST_CONTEXTS * max(self.context, USUAL_CONTEXT)
        return min(max(self.text_length, shortest), LONGEST_WINDOW)

    @property
    def reading_sentences(self) -> int | None:
        """The most sentences of a long text that are read at once; None for as many as the window holds."""
        return self.text_sentences if self.window is None else None

    @property
    def context(self) -> int:
        """Units of context on each side of a place where a sentence is cut."""
        return USUAL_CONTEXT if self.overlap is None else self.overlap

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
        window = self.training_window
        if window <= 2 * self.context:
            raise SettingError(f"window must be longer than twice the overlap, {self.context}; got {window}")
        if self.max_units < window:
            raise SettingError(f"max_units must be at least the window, {window}; got {self.max_units}")
        if self.spans_key and self.spans_key == self.chars_key:
            raise SettingError(f"spans_key and chars_key must be two groups of doc.spans; both are {self.spans_key!r}")
        thresholds = self.threshold.values() if isinstance(self.threshold, dict) else [self.threshold]
        if not all(0.0 <= threshold <= 1.0 for threshold in thresholds):
            raise SettingError(f"threshold must be from 0 to 1, alone or for each label; got {self.threshold}")
