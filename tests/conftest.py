"""Fixtures for tests of layers: texts, a small transformer, and the batches that a model encodes."""

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
def deterministic_transformer(tmp_path_factory):
    """A transformer without dropout, whose output is the same in training and prediction."""
    from tiny_transformer import save_tiny_transformer

    path = tmp_path_factory.mktemp("deterministic_transformer")
    return save_tiny_transformer(path, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)


@pytest.fixture
def encoded_batches(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The texts of each batch of Docs for which a model computed emissions."""
    read: list[list[str]] = []
    original = WindowBatcher.emissions

    def emissions(self: WindowBatcher, model: Any, group: Sequence[SplitDoc]) -> Any:
        read.append([doc.view.doc.text for doc in group])
        return original(self, model, group)

    monkeypatch.setattr(WindowBatcher, "emissions", emissions)
    return read
