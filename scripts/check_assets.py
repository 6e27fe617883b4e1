"""Say which files of a licensed corpus are not at their places, and where they come from."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import srsly
from wasabi import msg

PROJECT = "project.yml"


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", help="its directory under assets/, as msra")
    parser.add_argument("--project", type=Path, default=Path(), help="directory of project.yml (default: this one)")
    args = parser.parse_args(argv)
    places = places_of(args.project, args.corpus)
    if not places:
        msg.fail(f"{PROJECT} has no assets at assets/{args.corpus}", exits=1)
    missing = {place: source for place, source in places.items() if not (args.project / place).exists()}
    for place, source in missing.items():
        msg.fail(f"Missing: {place}", source)
    if missing:
        msg.text("It is licensed and cannot be fetched. Put your copy there; assets/README.md says more.", exits=1)
    msg.good(f"There: {', '.join(places)}")


def places_of(project: Path, corpus: str) -> dict[str, str]:
    """The places of a corpus' files, and what belongs there."""
    assets = srsly.read_yaml(project / PROJECT)["assets"]
    return {asset["dest"]: asset["description"] for asset in assets if asset["dest"].split("/")[1] == corpus}


if __name__ == "__main__":
    main()
