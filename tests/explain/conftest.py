"""Trained pipelines of every architecture, in small windows."""

from __future__ import annotations

from functools import cache

import pytest
import spacy
from small_systems import trained
from spacy.language import Language


@pytest.fixture(scope="session")
def learned():
    """Loads a pipeline of an architecture, once for all tests, which leave it as it is."""

    @cache
    def load(name: str = "FLAT_ATSSA") -> Language:
        nlp = spacy.load(trained(name.lower()))
        nlp.get_pipe("tener_ner").cfg.update(window=40, overlap=10)
        return nlp

    return load
