"""Texts that models of characters read in tests."""

import pytest
import spacy


@pytest.fixture(scope="module")
def docs():
    nlp = spacy.blank("zh")
    return [nlp.make_doc(text) for text in ["吴重阳在中国银行工作", "", "京", "今天12"]]
