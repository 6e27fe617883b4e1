"""The arrays of a trained module, by the names that torch gives them."""

from __future__ import annotations

from collections.abc import Mapping

from ..types import FloatArray


class Weights:
    """Arrays by name, from one part of a module on.

    arrays: Of the whole module.
    prefix: What the names of this part's arrays begin with.
    """

    def __init__(self, arrays: Mapping[str, FloatArray], prefix: str = "") -> None:
        self._arrays, self._prefix = arrays, prefix

    def __getitem__(self, name: str) -> FloatArray:
        return self._arrays[self._prefix + name]

    def get(self, name: str) -> FloatArray | None:
        return self._arrays.get(self._prefix + name)

    def part(self, *names: object) -> Weights:
        """The arrays of a part: `part("layers", 0)` has those whose names begin with `layers.0.`."""
        return Weights(self._arrays, self._prefix + "".join(f"{name}." for name in names))
