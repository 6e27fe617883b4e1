"""Divide a .spacy file: its last Docs become the development part of a corpus that has none.

They are not drawn at random: neighbours in a corpus are often of one article, which then would be in both parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from spacy.tokens import DocBin
from spacy.vocab import Vocab
from wasabi import msg


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="the .spacy file to divide")
    parser.add_argument("train", type=Path, help="the file to write all but the last Docs to")
    parser.add_argument("dev", type=Path, help="the file to write the last Docs to")
    parser.add_argument("--share", type=float, default=0.1, help="how many are the last (default: %(default)s)")
    args = parser.parse_args(argv)
    if not args.source.exists():
        msg.fail(f"There is no data at {args.source}", "Convert a corpus with `spacy tener convert` first.", exits=1)
    counts = divide(args.source, args.train, args.dev, share=args.share)
    if not all(counts):
        msg.fail(f"A share of {args.share} leaves nothing to one of the parts", "Choose another --share.", exits=1)
    msg.good(f"{args.source}: {counts[0]:,} Docs to {args.train}, the last {counts[1]:,} to {args.dev}")


def divide(source: Path, train: Path, dev: Path, *, share: float) -> tuple[int, int]:
    """Write both parts, unless one is empty; return how many Docs each has."""
    binary = DocBin().from_disk(source)
    docs = list(binary.get_docs(Vocab()))
    first = len(docs) - int(share * len(docs))
    parts = docs[:first], docs[first:]
    if all(parts):
        for part, path in zip(parts, (train, dev), strict=True):
            path.parent.mkdir(parents=True, exist_ok=True)
            DocBin(docs=part, attrs=binary.attrs).to_disk(path)
    return len(parts[0]), len(parts[1])


if __name__ == "__main__":
    main()
