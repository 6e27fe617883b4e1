"""A checksum beside what is saved, so that a flipped bit is found when it is read, and not in the predictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any, cast

import srsly

from ...errors import RemedyError

CHECKSUM = "checksum"


def pack(message: Mapping[str, Any]) -> bytes:
    """A message as bytes, with its checksum."""
    return cast(bytes, srsly.msgpack_dumps({**message, CHECKSUM: _checksum(message)}))


def unpack(data: bytes, *names: str | tuple[str, ...]) -> dict[str, Any]:
    """What was given to `pack`. Messages without a checksum, as pipelines saved before there were any have them, are
    taken as they are.

    names: What the message must hold; of several in a tuple, one.
    """
    message = srsly.msgpack_loads(data)
    if not isinstance(message, dict) or not _holds(message, names):
        raise ValueError(
            "This model file does not hold the weights of a spacy_tener model: it is damaged, or was written by "
            "another architecture. Check that the config beside it names the architecture it was trained with."
        )
    saved = message.pop(CHECKSUM, None)
    if saved is not None and saved != _checksum(message):
        raise RemedyError(
            "A part of the model does not have the checksum that was saved with it",
            "The file is damaged. Restore it from a copy, or train again.",
        )
    return message


def _holds(message: Mapping[str, Any], names: Iterable[str | tuple[str, ...]]) -> bool:
    return all(set(message) & {*((name,) if isinstance(name, str) else name)} for name in names)


def _checksum(message: Mapping[str, Any]) -> bytes:
    digest = blake2b(digest_size=16)
    for name, value in message.items():
        value = value if isinstance(value, bytes) else srsly.msgpack_dumps(value)
        # With the sizes, so that what is moved from one part to the next is found too.
        digest.update(srsly.msgpack_dumps([name, len(value)]))
        digest.update(value)
    return digest.digest()
