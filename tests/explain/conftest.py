"""Trained pipelines of all architectures, with small windows."""

from __future__ import annotations

from functools import cache

import pytest
import spacy
from small_systems import trained
from spacy.language import Language


@pytest.fixture(scope="session")
def learned():
    """Load a trained pipeline of an architecture. Tests share it and must not change it."""

    @cache
    def load(name: str = "FLAT_ATSSA") -> Language:
        nlp = spacy.load(trained(name.lower()))
        nlp.get_pipe("tener_ner").cfg.update(window=40, overlap=10)
        return nlp

    return load
