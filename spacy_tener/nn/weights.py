"""Weights of a trained module, by their names in torch's state_dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray


class WeightsError(ValueError):
    """The weights do not fit the settings."""


class Weights:
    """Arrays of a module or of a submodule, by name.

    arrays (Mapping[str, NDArray[Any]]): Arrays of the whole module.
    prefix (str): Prefix of the names of the submodule's arrays.
    """

    def __init__(self, arrays: Mapping[str, NDArray[Any]], prefix: str = "", used: set[str] | None = None) -> None:
        self._arrays, self._prefix = arrays, prefix
        self._used = set() if used is None else used

    def __getitem__(self, name: str) -> NDArray[Any]:
        name = self._prefix + name
        if name not in self._arrays:
            raise WeightsError(f"The weights lack '{name}'")
        self._used.add(name)
        return self._arrays[name]

    def get(self, name: str) -> NDArray[Any] | None:
        return self[name] if self._prefix + name in self._arrays else None

    def shaped(self, name: str, *shape: int | None) -> NDArray[Any]:
        """Return an array, after checking its shape against the settings; None for any size."""
        array = self[name]
        fits = array.ndim == len(shape) and all(n in (None, size) for n, size in zip(shape, array.shape, strict=True))
        if not fits:
            raise WeightsError(
                f"The weights '{self._prefix}{name}' have the shape {array.shape}, but the settings ask for "
                f"{tuple('any' if size is None else size for size in shape)}"
            )
        return array

    def part(self, *names: object) -> Weights:
        """Return the arrays of a submodule: `part("layers", 0)` has those whose names begin with `layers.0.`."""
        return Weights(self._arrays, self._prefix + "".join(f"{name}." for name in names), self._used)

    def check_all_used(self) -> None:
        """Raise if any array was not read: the weights belong to another config."""
        unused = sorted(set(self._arrays) - self._used)
        if unused:
            raise WeightsError(f"The weights hold '{unused[0]}', which the settings do not use")
