"""The versions of what takes part in a result: of a training, a measurement, a file of vectors."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("spacy_tener", "spacy", "thinc", "torch", "numpy")


def installed_versions(*packages: str) -> dict[str, str]:
    """By name, the versions of Python and of the packages (none named: of those that every pipeline of ours needs).
    Packages that are not installed are left out."""
    found = {"Python": platform.python_version()}
    for package in packages or PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
