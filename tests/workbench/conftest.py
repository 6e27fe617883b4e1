"""What tests of the workbench share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spacy_tener.pipeline.units import DocView
from spacy_tener.pipeline.windows import WindowBatcher


@pytest.fixture
def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of each group that a model has read."""
    read: list[list[str]] = []
    original = WindowBatcher.emissions

    def emissions(self: WindowBatcher, model: Any, views: Sequence[DocView]) -> Any:
        read.append([view.doc.text for view in views])
        return original(self, model, views)

    monkeypatch.setattr(WindowBatcher, "emissions", emissions)
    return read
