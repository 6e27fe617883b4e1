"""The settings and learned values in a component's `cfg`, as validated objects.

spaCy saves `cfg` as a flat dictionary. Users can change settings in this dictionary: `pipe.cfg["threshold"] = 0.5`.

- `NERSettings` contains the settings, which are set in the config. The factory in `factory.py` documents them.
- `LearnedValues` contains values from training and calibration. Initialization resets these values, and loading a model
  replaces them.

The only other key in `cfg` is `labels`, which `TenerNER.add_label` extends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, fields, replace
from typing import Any

from pydantic import PositiveInt
from pydantic.dataclasses import dataclass

from ..errors import check_choice
from ..validation import STRICT, SettingError, name_errors
from .units import Alignment, View

CHARS_KEY = "tener_ner_chars"

# Default maximum number of tokens or characters in a window. The setting `window` overrides it.
DEFAULT_MAX_WINDOW = 200
# Default number of context tokens or characters on each side of a split within a sentence. The setting `overlap`
# overrides it.
DEFAULT_CONTEXT = 8
# Minimum window length as a multiple of the context length. With context on both sides, predictions are kept for at
# least half of a window.
_MIN_WINDOW_FACTOR = 4
# If less than this fraction of a label's boundaries are inside Latin words, these boundaries are treated as annotation
# errors.
_MAX_ERROR_RATE = 0.1


@dataclass(frozen=True, config=STRICT)
class TextSizes:
    """The typical size of the training texts. The values are None before training.

    If the setting `window` is None, longer texts are split into windows of about this size in prediction.

    units (int | None): 90th percentile of the text length in tokens or characters.
    sentences (int | None): 90th percentile of the number of sentences in a text.
    """

    units: int | None = None
    sentences: int | None = None


@dataclass(frozen=True, config=STRICT)
class LearnedValues:
    """Values in a component's `cfg` that are computed in training and calibration.

    token_length (float | None): Mean token length in the training data, in characters. None before training, or if the
        tokenizer is a `MultilingualTokenizer`. In the second case, the length depends on the languages in the text.
    text_length (int | None): See `TextSizes.units`.
    text_sentences (int | None): See `TextSizes.sentences`.
    labels_over_lines (list[str]): Labels with training entities that contain a line break.
    labels_with_ornaments (list[str]): Labels with training entities that begin or end with an ornament, such as an
        emoji.
    latin_edges (dict[str, list[int]]): Two numbers for each label: how many boundaries of its training entities are
        inside a Latin word, and how many are at the start or end of one.
    temperature (Any): Divisor of the CRF's scores when probabilities are computed. `spacy tener calibrate` sets the
        temperature, and `TenerNER.temperature` validates it.
    """

    token_length: float | None = None
    text_length: int | None = None
    text_sentences: int | None = None
    labels_over_lines: list[str] = field(default_factory=list)
    labels_with_ornaments: list[str] = field(default_factory=list)
    latin_edges: dict[str, list[int]] = field(default_factory=dict)
    temperature: Any = 1.0

    @classmethod
    def from_cfg(cls, cfg: Mapping[str, Any]) -> LearnedValues:
        """Create the object from a component's `cfg`. Values that `cfg` does not contain have their defaults."""
        with name_errors("tener_ner"):
            return cls(**{name: cfg[name] for name in LEARNED if name in cfg})

    def to_cfg(self) -> dict[str, Any]:
        """Return the learned values for a component's `cfg`. Defaults are left out."""
        return {name: value for name, value in asdict(self).items() if value != getattr(_UNTRAINED, name)}

    def rename(self, names: Mapping[str, str]) -> LearnedValues:
        """Return a copy in which labels are renamed.

        names (Mapping[str, str]): New names for labels, as a dictionary from old to new names.
        """
        return replace(
            self,
            labels_over_lines=[names.get(label, label) for label in self.labels_over_lines],
            labels_with_ornaments=[names.get(label, label) for label in self.labels_with_ornaments],
            latin_edges={names.get(label, label): counts for label, counts in self.latin_edges.items()},
        )

    @property
    def labels_within_words(self) -> list[str]:
        """The labels whose entities can begin or end inside a Latin word."""
        counts = self.latin_edges.items()
        return [label for label, (inside, at_edge) in counts if inside > _MAX_ERROR_RATE * (inside + at_edge)]


_UNTRAINED = LearnedValues()
# Keys in `cfg` for learned values.
LEARNED = [value.name for value in fields(LearnedValues)]


@dataclass(frozen=True, config=STRICT)
class NERSettings:
    """The validated settings of a component. `make_tener_ner` documents them.

    training_texts (TextSizes): The typical size of the training texts, which determines the default window. This is a
        learned value and not a setting.
    """

    view: View = "tokens"
    alignment_mode: Alignment = "expand"
    window: PositiveInt | None = None
    overlap: PositiveInt | None = None
    max_units: PositiveInt = 4096
    incorrect_spans_key: str | None = None
    chars_key: str | None = CHARS_KEY
    spans_key: str | None = None
    threshold: float | dict[str, float] = 0.0
    training_texts: TextSizes = TextSizes()

    @classmethod
    def from_cfg(cls, cfg: Mapping[str, Any]) -> NERSettings:
        """Create the object from a component's `cfg`. Raise an error if `cfg` contains an unknown key or an invalid
        value."""
        settings = {name: value for name, value in cfg.items() if name not in ("labels", *LEARNED)}
        for name in settings:
            check_choice("setting", name, SETTINGS, "of tener_ner")
        learned = LearnedValues.from_cfg(cfg)
        texts = TextSizes(learned.text_length, learned.text_sentences)
        with name_errors("tener_ner"):
            return cls(**settings, training_texts=texts)

    def to_cfg(self) -> dict[str, Any]:
        """Return the settings for a component's `cfg`."""
        return {name: getattr(self, name) for name in SETTINGS}

    @property
    def training_window(self) -> int:
        """Maximum number of tokens or characters that the model processes at once in training."""
        return self.window or DEFAULT_MAX_WINDOW

    @property
    def prediction_window(self) -> int:
        """Maximum number of tokens or characters that the model processes at once in prediction.

        The default is the typical length of the training texts, with a lower and an upper limit.
        """
        if self.window is not None or self.training_texts.units is None:
            return self.training_window
        min_window = _MIN_WINDOW_FACTOR * max(self.context, DEFAULT_CONTEXT)
        return min(max(self.training_texts.units, min_window), DEFAULT_MAX_WINDOW)

    @property
    def prediction_sentences(self) -> int | None:
        """Maximum number of sentences in a window. None if there is no limit."""
        return self.training_texts.sentences if self.window is None else None

    @property
    def context(self) -> int:
        """Number of context tokens or characters on each side of a split within a sentence."""
        return DEFAULT_CONTEXT if self.overlap is None else self.overlap

    @property
    def needs_probabilities(self) -> bool:
        """Whether probabilities must be computed to set a Doc's entities."""
        return bool(self.spans_key or self.threshold)

    def thresholds(self, labels: Sequence[str]) -> list[float]:
        """Return the probability threshold for each label. Raise an error if the setting contains an unknown label."""
        if not isinstance(self.threshold, dict):
            return [self.threshold] * len(labels)
        for label in self.threshold:
            fix = "The component has no labels. Add labels before you set thresholds for them."
            check_choice("label", label, labels, "in the setting 'threshold' of tener_ner", fix_if_empty=fix)
        return [self.threshold.get(label, 0.0) for label in labels]

    def __post_init__(self) -> None:
        window = self.training_window
        if window <= 2 * self.context:
            raise SettingError(f"window must be greater than twice the overlap ({self.context}); got {window}")
        if self.max_units < window:
            raise SettingError(f"max_units must be at least as large as window ({window}); got {self.max_units}")
        if self.spans_key and self.spans_key == self.chars_key:
            raise SettingError(f"spans_key and chars_key must be different; both are {self.spans_key!r}")
        thresholds = self.threshold.values() if isinstance(self.threshold, dict) else [self.threshold]
        if not all(0.0 <= threshold <= 1.0 for threshold in thresholds):
            raise SettingError(
                f"threshold must be a number from 0 to 1, or such a number for each label; got {self.threshold}"
            )


# Keys in `cfg` for settings.
SETTINGS = [setting.name for setting in fields(NERSettings) if setting.name != "training_texts"]
