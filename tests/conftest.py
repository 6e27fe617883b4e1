"""Texts that models of characters read in tests, a transformer, and the texts that a model has read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from spacy_tener.pipeline.windows import SplitDoc, WindowBatcher


@pytest.fixture(scope="module")
def docs():
    import spacy

    nlp = spacy.blank("zh")
    return [nlp.make_doc(text) for text in ["吴重阳在中国银行工作", "", "京", "江河湖12"]]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    from tiny_transformer import save_tiny_transformer

    return save_tiny_transformer(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def still(tmp_path_factory):
    """A transformer without dropout of its own: the same in training as in prediction."""
    from tiny_transformer import save_tiny_transformer

    path = tmp_path_factory.mktemp("still")
    return save_tiny_transformer(path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture
def groups_read(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of each group that a model has read."""
    read: list[list[str]] = []
    original = WindowBatcher.emissions

    def emissions(self: WindowBatcher, model: Any, group: Sequence[SplitDoc]) -> Any:
        read.append([doc.view.doc.text for doc in group])
        return original(self, model, group)

    monkeypatch.setattr(WindowBatcher, "emissions", emissions)
    return read
