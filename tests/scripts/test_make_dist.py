"""Normalization of an sdist, so that builds are reproducible."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

from make_dist import normalize_sdist

TIME = 1_700_000_000


def make_sdist(path: Path, files: list[tuple[str, bytes]], *, time: int, owner: str) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uname, member.uid = len(content), time, owner, time % 1000
            archive.addfile(member, io.BytesIO(content))
    return path


def test_normalization_removes_time_order_and_owner(tmp_path: Path) -> None:
    files = [("a/PKG-INFO", b"one"), ("a/b.py", b"two")]
    first = make_sdist(tmp_path / "first.tar.gz", files, time=1_000_000_000, owner="ann")
    second = make_sdist(tmp_path / "second.tar.gz", files[::-1], time=1_500_000_123, owner="ben")
    assert first.read_bytes() != second.read_bytes()
    normalize_sdist(first, TIME)
    normalize_sdist(second, TIME)
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as archive:
        assert [(member.name, member.mtime, member.uname) for member in archive] == [(n, TIME, "") for n, _ in files]
        content = archive.extractfile("a/b.py")
        assert content is not None
        assert content.read() == b"two"
