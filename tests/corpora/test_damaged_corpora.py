"""Test the conversion of randomly damaged corpora.

The conversion either raises an error that names the position, or finds the same texts and entities as a simple parser.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import corpus_formats
import pytest
from corpus_formats import PACKED, SENTENCES
from damaged_corpora import FORMATS, TEXTS, apply_damage, check, check_counts, convert_damaged
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spacy_tener import files
from spacy_tener.corpora import convert as conversion
from spacy_tener.corpora.convert import ConversionReport
from spacy_tener.corpora.reader import CorpusOptions
from spacy_tener.errors import UserError


@pytest.fixture(autouse=True, scope="module")
def fast_conversion() -> Iterator[None]:
    """Cache blank pipelines and skip fsync, since thousands of small files are converted."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(conversion, "blank_pipeline", cache(conversion.blank_pipeline))
        patch.setattr(files.os, "fsync", lambda descriptor: None)
        yield


def fuzz_settings(max_examples: int) -> settings:
    return settings(max_examples=max_examples, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", TEXTS)
def test_undamaged_corpora_are_converted_in_all_encodings(tmp_path: Path, name: str, encoding: str) -> None:
    text = TEXTS[name](SENTENCES)
    result = check(tmp_path, name, text.encode(encoding), CorpusOptions(encoding=encoding))
    assert isinstance(result, ConversionReport)
    assert result.format == FORMATS.get(name, name)
    assert (result.docs, result.entities) == (6, 10)
    if encoding != "utf-8":
        wrong = check(tmp_path, name, text.encode(encoding), CorpusOptions())
        assert isinstance(wrong, UserError) or result.entities == wrong.entities


@pytest.mark.parametrize("name", TEXTS)
@fuzz_settings(40)
@given(seed=st.integers(0, 1 << 32), auto=st.booleans())
def test_damaged_corpus_raises_error_or_is_converted(
    tmp_path_factory: pytest.TempPathFactory, name: str, seed: int, auto: bool
) -> None:
    folder = tmp_path_factory.getbasetemp()
    options = CorpusOptions() if auto else CorpusOptions(format=FORMATS.get(name, name))
    check(folder, name, apply_damage(TEXTS[name](SENTENCES).encode(), seed), options)


@pytest.mark.parametrize("suffix", PACKED)
@fuzz_settings(60)
@given(seed=st.integers(0, 1 << 32))
def test_damaged_archive_raises_error_or_is_converted(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, seed: int
) -> None:
    folder = tmp_path_factory.getbasetemp()
    text = corpus_formats.columns(SENTENCES)
    path = folder / f"packed.txt{suffix}"
    path.write_bytes(apply_damage(PACKED[suffix](text.encode()), seed))
    result = convert_damaged(path, folder / "out.spacy", CorpusOptions())
    if isinstance(result, ConversionReport):
        check_counts(result, corpus_formats.count_columns(text, 0))
