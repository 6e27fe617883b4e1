"""Trained pipelines on disk."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

SAVED = Path(__file__).parents[1] / "data" / "saved-0.1"


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("saved")
    for name in ("tener", "characters"):
        with zipfile.ZipFile(SAVED / f"{name}.zip") as archive:
            archive.extractall(folder / name)
    return {name: folder / name for name in ("tener", "characters")}
