"""Files by their addresses: local paths, and whatever fsspec can open."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from ...errors import InputError, RemedyError
from ...inputs import suffix_of, walk

TEXT, WHOLE = "text", "whole files"
FORMATS = {
    **dict.fromkeys((".txt", ".text"), TEXT),
    **dict.fromkeys((".jsonl", ".ndjson"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
    **dict.fromkeys((".parquet", ".pq"), "parquet"),
    ".spacy": "spacy",
}
_BLOCK = 1 << 16  # bytes at the start, in the middle and at the end that a local file is known by


@dataclass(frozen=True)
class Source:
    """A file to read. size: in bytes, as it is stored. mark: changes where its content does."""

    address: str
    size: int
    mark: str

    @property
    def format(self) -> str:
        """By the file's name; what has none of the known endings holds a text on each line."""
        return FORMATS.get(suffix_of(self.address), TEXT)

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        if is_remote(self.address):
            system, path = remote(self.address)
            with system.open(path, "rb") as file:
                yield file
        else:
            with open(self.address, "rb") as file:
                yield file


def is_remote(address: str) -> bool:
    return "://" in address


def remote(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    try:
        import fsspec
    except ImportError as error:
        raise RemedyError(f"{address} needs fsspec", "pip install 'spacy_tener[annotate]'") from error
    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ValueError, ImportError) as error:
        remedy = "Install what fsspec needs for such addresses, as s3fs for s3://, or check the address."
        raise InputError(address, str(error).rstrip("."), remedy) from error
    return system, cast(str, path)


def find_sources(addresses: Sequence[str]) -> tuple[list[Source], list[str]]:
    """The files to read, in order, and those in directories that have none of the known endings."""
    sources: list[Source] = []
    left_out: list[str] = []
    for address in addresses:
        found, other = _remote_files(address) if is_remote(address) else _local_files(address)
        sources += found
        left_out += other
    return sources, left_out


def _local_files(address: str) -> tuple[list[Source], list[str]]:
    if not Path(address).is_dir():
        return [_local(address)], []
    taken, other = walk(Path(address), lambda path: suffix_of(path) in FORMATS)
    _check_any(address, len(taken), len(other))
    return [_local(str(path)) for path in taken], [str(path) for path in other]


def _local(address: str) -> Source:
    try:
        with open(address, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest = hashlib.blake2b(digest_size=8)
            for place in (0, max(0, size // 2 - _BLOCK), max(0, size - _BLOCK)):
                file.seek(place)
                digest.update(file.read(_BLOCK))
    except OSError as error:
        raise InputError(address, f"cannot be read: {error.strerror or error}", "Check the path.") from error
    return Source(address, size, digest.hexdigest())


def _remote_files(address: str) -> tuple[list[Source], list[str]]:
    system, path = remote(address)
    try:
        if any(sign in path for sign in "*?["):
            names, chosen = sorted(system.glob(path)), True
        elif system.isdir(path):
            names, chosen = sorted(system.find(path)), False
        else:
            names, chosen = [path], True
        taken = [name for name in names if chosen or _is_wanted(name.removeprefix(path))]
        _check_any(address, len(taken), len(names) - len(taken))
        sources = [Source(system.unstrip_protocol(name), _size(system, name), str(system.ukey(name))) for name in taken]
    except FileNotFoundError as error:
        raise InputError(address, "there is no such file", "Check the address.") from error
    return sources, [name for name in names if name not in set(taken)]


def _size(system: Any, name: str) -> int:
    return int(system.size(name) or 0)


def _is_wanted(path: str) -> bool:
    hidden = any(part.startswith((".", "_")) for part in path.split("/"))
    return not hidden and suffix_of(path) in FORMATS


def _check_any(address: str, taken: int, other: int) -> None:
    if not taken:
        remedy = f"Name the files themselves, or let them end in {', '.join(FORMATS)}."
        raise InputError(address, f"nothing to read among its {other} files", remedy)
