"""The weights of a module as bytes, and back: nothing that is read can run code.

Version 0.1 saved what `torch.save` writes: a zip archive with the arrays as they lie in memory and a pickle that says
which they are. The pickle is not unpickled: its few opcodes are read here, and anything else is refused.
"""

from __future__ import annotations

import io
import math
import pickletools
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "HalfStorage": "<f2", "LongStorage": "<i8"}
_KNOWN = frozenset(_DTYPES.values())

Arrays = Mapping[str, NDArray[Any]]


def pack_arrays(arrays: Arrays) -> dict[str, Any]:
    """Arrays as one block of bytes, and what lies where in it."""
    made = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    layout = [[name, array.dtype.newbyteorder("<").str, list(array.shape)] for name, array in made.items()]
    return {
        "layout": layout,
        "weights": b"".join(array.astype(array.dtype.newbyteorder("<")).tobytes() for array in made.values()),
    }


def unpack_arrays(message: Mapping[str, Any]) -> Arrays:
    """What was given to `pack_arrays`, as views of the block."""
    block, arrays, begin = message["weights"], {}, 0
    for name, dtype, shape in message["layout"]:
        size = math.prod(shape)
        if dtype not in _KNOWN or begin + size * np.dtype(dtype).itemsize > len(block):
            raise ValueError(f"the array '{name}' is not whole")
        arrays[name] = np.frombuffer(block, dtype, count=size, offset=begin).reshape(shape)
        begin += arrays[name].nbytes
    if begin != len(block):
        raise ValueError("there are more weights than arrays")
    return arrays


def arrays_from_torch(state: bytes) -> Arrays:
    """The arrays of a file that `torch.save` wrote of a dictionary of tensors; none for no bytes."""
    if not state:
        return {}
    with zipfile.ZipFile(io.BytesIO(state)) as archive:
        folder = archive.namelist()[0].partition("/")[0]
        found = _Reader(lambda key: archive.read(f"{folder}/data/{key}")).read(archive.read(f"{folder}/data.pkl"))
    if not isinstance(found, dict) or not all(isinstance(array, np.ndarray) for array in found.values()):
        raise ValueError("the weights are no dictionary of tensors")
    return found


class _Storage(NamedTuple):
    dtype: str
    data: bytes


class _Mark:
    """Where a list of values on the stack begins."""


class _Reader:
    """Reads a pickle of a dictionary of tensors, opcode by opcode.

    load: The bytes of a storage, by its key.
    """

    def __init__(self, load: Callable[[str], bytes]) -> None:
        self._load = load
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def read(self, data: bytes) -> Any:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name == "STOP":
                return self._stack.pop()
            self._step(opcode.name, argument)
        raise ValueError("the list of the weights has no end")

    def _step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in ("BINUNICODE", "SHORT_BINUNICODE", "BININT", "BININT1", "BININT2", "LONG1"):
            stack.append(argument)
        elif name in ("NEWTRUE", "NEWFALSE"):
            stack.append(name == "NEWTRUE")
        elif name == "GLOBAL":
            stack.append(_name_of(argument))
        elif name in ("BINPUT", "LONG_BINPUT"):
            self._memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(self._memo[argument])
        elif name == "MARK":
            stack.append(_Mark)
        elif name in ("EMPTY_DICT", "EMPTY_TUPLE"):
            stack.append({} if name == "EMPTY_DICT" else ())
        elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(self._to_mark() if name == "TUPLE" else self._last(int(name[-1]))))
        elif name == "SETITEM":
            key, value = self._last(2)
            stack[-1][key] = value
        elif name == "SETITEMS":
            values = self._to_mark()
            stack[-1].update(zip(values[::2], values[1::2], strict=True))
        elif name == "BINPERSID":
            stack.append(self._storage(*stack.pop()))
        elif name == "REDUCE":
            called, given = self._last(2)
            stack.append(_array(*given) if called == "_rebuild_tensor_v2" else {})
        elif name != "PROTO":
            raise ValueError(f"the list of the weights holds {name}, which no list of weights needs")

    def _last(self, n: int) -> list[Any]:
        values = self._stack[-n:]
        del self._stack[-n:]
        return values

    def _to_mark(self) -> list[Any]:
        begin = next(place for place in reversed(range(len(self._stack))) if self._stack[place] is _Mark)
        return self._last(len(self._stack) - begin)[1:]

    def _storage(self, kind: str, storage: str, key: str, location: str, size: int) -> _Storage:
        if kind != "storage" or storage not in _DTYPES:
            raise ValueError(f"the weights are of the unknown kind {storage}")
        return _Storage(_DTYPES[storage], self._load(key))


def _name_of(argument: str) -> str:
    module, _, name = argument.partition(" ")
    known = {"torch._utils": {"_rebuild_tensor_v2"}, "torch": set(_DTYPES), "collections": {"OrderedDict"}}
    if name not in known.get(module, ()):
        raise ValueError(f"the list of the weights names {module}.{name}, which no list of weights needs")
    return name


def _array(
    storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *others: Any
) -> NDArray[Any]:
    held = np.frombuffer(storage.data, storage.dtype)
    last = offset + sum(stride * (size - 1) for size, stride in zip(shape, strides, strict=True))
    if min((offset, *shape, *strides)) < 0 or (0 not in shape and last >= held.size):
        raise ValueError("an array does not lie in its storage")
    steps = [stride * held.itemsize for stride in strides]
    view = np.lib.stride_tricks.as_strided(held[offset:], shape, steps, writeable=False)
    return np.ascontiguousarray(view)
