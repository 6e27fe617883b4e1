"""Conversion of the public corpora: the numbers of sentences and entities agree with those of their papers and authors.

`make test-corpora` runs these tests. First download the corpora with `spacy project assets`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
import spacy
from conversion import convert
from damaged_corpora import FORMATS, TEXTS, apply_damage, check
from spacy.training import Corpus

from spacy_tener.corpora.annotation import Event, Sentence
from spacy_tener.corpora.reader import CorpusOptions, CorpusReader

DATA = Path(__file__).resolve().parents[2] / "assets"
N_DAMAGED_FILES = 50


@dataclass(frozen=True)
class Expected:
    path: str
    lang: str
    format: str
    scheme: str
    sentences: int
    tokens: int
    entities: int
    repaired: int = 0


CORPORA = [
    Expected("weibo/weiboNER_2nd_conll.train", "zh", "weibo", "IOB2", 1350, 73778, 1895, 10),
    Expected("weibo/weiboNER_2nd_conll.dev", "zh", "weibo", "IOB2", 270, 14509, 389),
    Expected("weibo/weiboNER_2nd_conll.test", "zh", "weibo", "IOB2", 270, 14842, 418, 4),
    # One entity of the training data is split by a sentence boundary.
    Expected("resume/train.char.bmes", "zh", "columns", "BMES", 3821, 124099, 13440, 4),
    Expected("resume/dev.char.bmes", "zh", "columns", "BMES", 463, 13890, 1497),
    Expected("resume/test.char.bmes", "zh", "columns", "BMES", 477, 15100, 1630),
    Expected("wnut17/wnut17train.conll", "en", "columns", "IOB2", 3394, 62730, 1975),
    Expected("wnut17/emerging.dev.conll", "en", "columns", "IOB2", 1009, 15733, 836),
    Expected("wnut17/emerging.test.annotated", "en", "columns", "IOB2", 1287, 23394, 1079),
]


@pytest.mark.corpora
@pytest.mark.parametrize("expected", CORPORA, ids=lambda expected: expected.path)
def test_conversion_preserves_sentences_and_entities(expected: Expected, tmp_path: Path) -> None:
    (report,) = convert([DATA / expected.path], tmp_path, lang=expected.lang)
    assert (report.format, report.scheme) == (expected.format, expected.scheme)
    assert (report.docs, report.tokens) == (expected.sentences, expected.tokens)
    assert report.entities == expected.entities
    assert report.notes.counts[Event.REPAIRED] == report.notes.counts.total() == expected.repaired


@pytest.mark.corpora
@pytest.mark.parametrize("expected", CORPORA, ids=lambda expected: expected.path)
def test_spacy_reads_all_converted_entities(expected: Expected, tmp_path: Path) -> None:
    (report,) = convert([DATA / expected.path], tmp_path, lang=expected.lang)
    examples = list(Corpus(report.output)(spacy.blank(expected.lang)))
    assert len(examples) == expected.sentences
    assert sum(len(example.reference.ents) for example in examples) == expected.entities


@pytest.mark.corpora
@pytest.mark.parametrize("expected", CORPORA, ids=lambda expected: expected.path)
def test_damaged_corpus_is_converted_or_raises_error(expected: Expected, tmp_path: Path) -> None:
    content = (DATA / expected.path).read_bytes()
    for seed in range(N_DAMAGED_FILES):
        check(
            tmp_path, "damaged", apply_damage(content, seed), CorpusOptions(format=("auto", expected.format)[seed % 2])
        )


@pytest.mark.corpora
@pytest.mark.parametrize("name", TEXTS)
def test_damage_in_other_formats_is_converted_or_raises_error(name: str, tmp_path: Path) -> None:
    read = CorpusReader(DATA / "weibo/weiboNER_2nd_conll.dev")
    items = [(item.tokens, item.spans) for item in read if isinstance(item, Sentence)]
    sentences = [
        (list(tokens), [(span.start, span.end, span.label) for span in spans]) for tokens, spans in items[:100]
    ]
    content = TEXTS[name](sentences).encode()
    for seed in range(10 * N_DAMAGED_FILES):
        check(
            tmp_path,
            name,
            apply_damage(content, seed),
            CorpusOptions(format=("auto", FORMATS.get(name, name))[seed % 2]),
        )
