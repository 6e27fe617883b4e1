"""How a `tener_ner` component reads Docs and writes entities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .units import Alignment, View

CHARS_KEY = "tener_ner_chars"


@dataclass(frozen=True)
class NERSettings:
    """The component's settings, checked. `make_tener_ner` says what each means."""

    view: View = "tokens"
    alignment_mode: Alignment = "expand"
    window: int = 200
    overlap: int = 40
    max_units: int = 4096
    incorrect_spans_key: str | None = None
    chars_key: str | None = CHARS_KEY

    @classmethod
    def of(cls, cfg: Mapping[str, Any]) -> NERSettings:
        """The settings in a component's `cfg`."""
        return cls(**{field.name: cfg[field.name] for field in fields(cls) if field.name in cfg})

    def __post_init__(self) -> None:
        if self.view not in ("tokens", "characters"):
            raise ValueError(f"The setting 'view' of tener_ner is {self.view!r}. Use 'tokens' or 'characters'.")
        if self.alignment_mode not in ("expand", "contract", "strict"):
            raise ValueError(
                f"The setting 'alignment_mode' of tener_ner is {self.alignment_mode!r}. "
                "Use 'expand', 'contract' or 'strict'."
            )
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
