"""Safetensors files with a checksum, so that damage is found when a model is loaded, not in its predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..errors import RemedyError

_CHECKSUM = "checksum"
_VALUES = "values.json"
"""Name of the array with all parts that are neither arrays nor bytes."""


def to_safetensors(parts: Mapping[str, Any]) -> bytes:
    """Return a safetensors file with arrays, bytes, and other values that JSON can hold.

    Bytes are arrays of uint8 there, and so is the JSON of the other values. The checksum is in the header's metadata.
    """
    arrays, values = {}, {}
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            arrays[name] = np.asarray(part, order="C")
        elif isinstance(part, bytes):
            arrays[name] = np.frombuffer(part, dtype=np.uint8)
        else:
            values[name] = part
    arrays[_VALUES] = np.frombuffer(json.dumps(values).encode(), dtype=np.uint8)
    return save(arrays, {_CHECKSUM: _checksum(arrays)})


def from_safetensors(data: bytes) -> dict[str, Any]:
    """Return the parts of a file of `to_safetensors`, after verifying its checksum."""
    try:
        arrays = load(data)
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        intact = header["__metadata__"] == {_CHECKSUM: _checksum(arrays)}
    except (SafetensorError, KeyError, ValueError):
        intact = False
    if not intact:
        raise RemedyError(
            "The checksum of a part of the model is wrong",
            "The file is damaged, or spacy_tener did not write it. Restore it from a copy, or train again.",
        )
    parts: dict[str, Any] = json.loads(arrays.pop(_VALUES).tobytes())
    for name, array in arrays.items():
        parts[name] = array.tobytes() if array.dtype == np.uint8 else array
    return parts


def _checksum(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return a digest of the arrays' names, dtypes, shapes and bytes."""
    digest = blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
