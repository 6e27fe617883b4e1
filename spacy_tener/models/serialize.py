"""Safetensors files with a checksum, so that damage is found when a model is loaded, not in its predictions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from ..errors import RemedyError

_SIZE = 16
_KEY = "spacy_tener"
_BEFORE = b'\\"checksum\\": \\"'
"""Text before the checksum in the header, which is JSON inside JSON."""


def to_safetensors(parts: Mapping[str, Any]) -> bytes:
    """Return a safetensors file with arrays, bytes, and other values that JSON can hold.

    Bytes are arrays of uint8 there; the other values and the checksum are JSON in the header's metadata.
    """
    arrays, values = {}, {}
    for name, part in parts.items():
        if isinstance(part, np.ndarray):
            arrays[name] = np.asarray(part, order="C")
        elif isinstance(part, bytes):
            arrays[name] = np.frombuffer(part, dtype=np.uint8)
        else:
            values[name] = part
    metadata = json.dumps({"checksum": "0" * 2 * _SIZE, "values": values})
    data = bytearray(save(arrays, {_KEY: metadata}))
    begin = data.index(_BEFORE) + len(_BEFORE)
    data[begin : begin + 2 * _SIZE] = _checksum(data, begin)
    return bytes(data)


def from_safetensors(data: bytes) -> dict[str, Any]:
    """Return the parts of a file of `to_safetensors`, after verifying its checksum."""
    begin = data.find(_BEFORE) + len(_BEFORE)
    if data[begin : begin + 2 * _SIZE] != _checksum(data, begin):
        raise RemedyError(
            "The checksum of a part of the model is wrong",
            "The file is damaged, or spacy_tener did not write it. Restore it from a copy, or train again.",
        )
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    parts: dict[str, Any] = json.loads(header["__metadata__"][_KEY])["values"]
    for name, array in load(data).items():
        parts[name] = array.tobytes() if array.dtype == np.uint8 else array
    return parts


def _checksum(data: bytes | bytearray, begin: int) -> bytes:
    """Return the checksum of all bytes except its own, which start at `begin`."""
    digest = blake2b(memoryview(data)[:begin], digest_size=_SIZE)
    digest.update(memoryview(data)[begin + 2 * _SIZE :])
    return digest.hexdigest().encode()
