"""Serialization of weights and settings as safetensors files with a checksum, which detects damaged files.

In contrast to pickle, loading a safetensors file can't run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from ..errors import UserError

_CHECKSUM = "checksum"
# Values that are neither arrays nor bytes are stored as JSON in an array with this name. In this JSON object, the same
# name contains the names of all uint8 arrays that are not bytes. It is missing if there are no such arrays.
_VALUES = "values.json"


def to_safetensors(parts: Mapping[str, Any]) -> bytes:
    """Serialize arrays, bytes and JSON-serializable values as safetensors.

    Since safetensors files contain only arrays, bytes are stored as uint8 arrays. All other values are stored as JSON
    in a single uint8 array. The file's metadata contains the checksum.

    parts (Mapping[str, Any]): The values by name. The name `values.json` is reserved.
    RETURNS (bytes): The file's content.
    """
    if _VALUES in parts:
        raise ValueError(f"The name {_VALUES!r} is reserved for internal use. Save this value under another name.")
    arrays, values = {}, {}
    uint8_arrays = [name for name, part in parts.items() if isinstance(part, np.ndarray) and part.dtype == np.uint8]
    if uint8_arrays:
        values[_VALUES] = uint8_arrays
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
    """Return the values that `to_safetensors` serialized. Raise an error if the checksum is wrong."""
    try:
        arrays = load(data)
        # The checksum is in the header. A safetensors file begins with the header's length in 8 bytes, followed by the
        # header as JSON.
        header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
        intact = header["__metadata__"] == {_CHECKSUM: _checksum(arrays)}
    except (SafetensorError, KeyError, ValueError):
        intact = False
    if not intact:
        raise UserError(
            "The checksum of a part of the model is wrong",
            "The file is damaged, or spacy_tener did not write it. Restore the file from a backup, or train the "
            "pipeline again.",
        )
    parts: dict[str, Any] = json.loads(arrays.pop(_VALUES).tobytes())
    uint8_arrays = parts.pop(_VALUES, ())
    for name, array in arrays.items():
        parts[name] = array.tobytes() if array.dtype == np.uint8 and name not in uint8_arrays else array
    return parts


def _checksum(arrays: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return a hash of the arrays' names, dtypes, shapes and contents."""
    digest = blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
