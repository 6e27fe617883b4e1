"""Small pipelines of every architecture, which know two sentences by heart, and what is said of them."""

from __future__ import annotations

from functools import cache

import pytest
from small_systems import TEXTS, examples_of, learn, pipeline, small_tok2vecs
from spacy.language import Language

WORDS = ["中国", "银行", "中国银行", "上海", "重阳", "工作"]


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """Makes a pipeline of an architecture, once for all tests, which leave it as it is."""

    @cache
    def make(name: str = "FLAT_ATSSA") -> Language:
        folder = tmp_path_factory.mktemp(name)
        tok2vec = small_tok2vecs(folder)[name]
        (folder / "words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf8")
        nlp = pipeline(tok2vec, window=40, overlap=10)
        learn(nlp, examples_of(nlp, [TEXTS[0], TEXTS[2]]), steps=60 if name == "GRN" else 25)
        return nlp

    return make
