"""Docs in spaCy's binary format, read and written again."""

from __future__ import annotations

from pathlib import Path

import pytest
from spacy.tokens import Doc, DocBin
from spacy.vocab import Vocab

from spacy_tener.errors import InputError
from spacy_tener.workbench.corpus.docs import read_docs


def test_docs_are_read_into_the_vocabulary_that_is_given_also_an_empty_one(tmp_path: Path) -> None:
    DocBin(docs=[Doc(Vocab(), words=["王小明", "去了"])]).to_disk(tmp_path / "a.spacy")
    vocab = Vocab()
    assert len(vocab) == 0
    (doc,) = read_docs(tmp_path / "a.spacy", vocab)
    assert doc.vocab is vocab
    assert [doc.text for doc in read_docs(tmp_path / "a.spacy")] == [doc.text]


def test_a_file_that_cannot_be_read_or_is_none_of_docs_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.spacy: cannot be read: No such file or directory\. Check"):
        list(read_docs(tmp_path / "missing.spacy"))
    (tmp_path / "a.spacy").write_bytes(b"[]")
    with pytest.raises(InputError, match=r"a\.spacy: is not a \.spacy file"):
        list(read_docs(tmp_path / "a.spacy"))
