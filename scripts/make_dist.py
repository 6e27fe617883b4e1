"""Build a reproducible sdist and wheel of the last commit in dist/.

Only files in git are included. The installed setuptools, which constraints.txt pins, builds the sdist, and then the
wheel from the sdist. The output does not depend on the time or the machine.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]


def make_dist(output: Path) -> list[Path]:
    """Write the sdist and the wheel to a directory, and return their paths. The directory is emptied first."""
    commit_time = _git("log", "-1", "--format=%ct").decode().strip()
    os.environ.update(SOURCE_DATE_EPOCH=commit_time, PYTHONHASHSEED="0")
    os.umask(0o022)
    shutil.rmtree(output, ignore_errors=True)
    with TemporaryDirectory() as folder:
        source, unpacked = Path(folder) / "source", Path(folder) / "unpacked"
        _unpack(io.BytesIO(_git("archive", "HEAD")), source)
        _build("sdist", source, output)
        (sdist,) = output.glob("*.tar.gz")
        normalize_sdist(sdist, int(commit_time))
        _unpack(io.BytesIO(gzip.decompress(sdist.read_bytes())), unpacked)
        _build("wheel", next(unpacked.iterdir()), output)
    return sorted(output.iterdir())


def normalize_sdist(path: Path, time: int) -> None:
    """Rewrite a .tar.gz with sorted names, a constant time and no owners, so that it is reproducible."""
    with tarfile.open(path) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers()]
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as copy:
            for member, content in sorted(members, key=lambda pair: pair[0].name):
                member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
                member.pax_headers = {}
                copy.addfile(member, content)
    path.write_bytes(gzip.compress(packed.getvalue(), mtime=time))


def _unpack(archive: io.BytesIO, folder: Path) -> None:
    with tarfile.open(fileobj=archive) as opened:
        opened.extractall(folder, filter="data")


def _build(kind: str, source: Path, output: Path) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(output), str(source)]
    process = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if process.returncode:
        sys.exit(process.stdout)


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


if __name__ == "__main__":
    for path in make_dist(ROOT / "dist"):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:,.0f} kB")
    if _git("status", "--porcelain"):
        print("Changes that are not committed are not in them.")
