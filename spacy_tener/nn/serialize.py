"""Reading and writing of safetensors files with a checksum, so that a damaged file is found when it is loaded.

Models are saved in this format, since loading it can't run code, in contrast to pickle.
"""

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
# Name of the array with the JSON of all values that are neither arrays nor bytes.
_VALUES = "values.json"


def to_safetensors(parts: Mapping[str, Any]) -> bytes:
    """Return a safetensors file with arrays, bytes, and values that can be written as JSON.

    Bytes and the JSON of other values are stored as arrays of uint8, and the checksum in the metadata of the header.
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
    """Read a file that `to_safetensors` has written. Raise an error if the checksum is wrong."""
    try:
        arrays = load(data)
        # The file begins with the length of the header in 8 bytes, followed by the header as JSON.
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
    """Return a digest of the names, dtypes, shapes and contents of arrays."""
    digest = blake2b(digest_size=16)
    for name, array in sorted(arrays.items()):
        digest.update(json.dumps([name, array.dtype.str, array.shape]).encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
