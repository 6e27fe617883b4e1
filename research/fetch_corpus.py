"""Download the files of one public corpus of project.yml: `python research/fetch_corpus.py weibo`.

A corpus is a folder of assets/. The corpus `names` also includes the files of `uner`.

`spacy project assets` downloads all corpora. Files that exist with the right checksum are not downloaded again.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

import srsly
from wasabi import msg

from spacy_tener.files import write_bytes

PROJECT = Path("project.yml")
# Corpora that also need the files of another corpus.
ALSO_NEEDED = {"names": "uner"}
_TIMEOUT = 60.0


def main(argv: Sequence[str] | None = None) -> None:
    assets: list[dict[str, str]] = srsly.read_yaml(PROJECT)["assets"]
    corpora = list(dict.fromkeys(Path(asset["dest"]).parts[1] for asset in assets))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", choices=corpora)
    corpus = parser.parse_args(argv).corpus
    for asset in assets:
        if Path(asset["dest"]).parts[1] in (corpus, ALSO_NEEDED.get(corpus)):
            fetch(asset["url"], Path(asset["dest"]), asset["checksum"])


def fetch(url: str, path: Path, checksum: str) -> None:
    """Download a file, unless it already exists with the right checksum. Exit with a message if this fails.

    url (str): The address of the file.
    path (Path): Where to save the file.
    checksum (str): The MD5 checksum of the file.
    """
    if path.is_file() and _checksum(path.read_bytes()) == checksum:
        msg.good(f"{path}: exists already")
        return
    try:
        with urlopen(url, timeout=_TIMEOUT) as response:
            content: bytes = response.read()
    except (OSError, HTTPException) as error:
        fix = f"Check the connection and run the command again, or save {url} to this path."
        msg.fail(f"{path}: cannot be downloaded: {error}", fix, exits=1)
    if _checksum(content) != checksum:
        fix = f"Run the command again. If this doesn't help, the file at {url} has changed."
        msg.fail(f"{path}: the downloaded file has a wrong checksum", fix, exits=1)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)
    msg.good(f"{path}: downloaded, {len(content):,} bytes")


def _checksum(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


if __name__ == "__main__":
    main()
