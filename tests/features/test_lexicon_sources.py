"""Sources of lexicon words: jieba, word lists and vectors, and the filters and formats of lists."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import spacy
from thinc.types import Floats1d

from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.lexicon_sources import (
    LexiconSource,
    jieba_lexicon,
    joined_lexicon,
    list_files,
    list_name,
    read_list,
    vectors_lexicon,
    word_list,
)


def tags_by_word(lexicon: Lexicon) -> dict[str, str]:
    return {word: lexicon.tag_names[tag] for word, tag in zip(lexicon.words, lexicon.tags, strict=True)}


def write(path: Path, *lines: str) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf8")
    return path


# jieba


@pytest.fixture(scope="module")
def jieba_words() -> Lexicon:
    return jieba_lexicon()()


def test_jieba_dictionary_contains_part_of_speech_tags(jieba_words: Lexicon) -> None:
    words = tags_by_word(jieba_words)
    assert len(words) == 337_302
    assert (words["南京"], words["长江大桥"], words["清华大学"]) == ("ns", "ns", "nt")
    assert {len(word) for word in words} == set(range(2, 11))
    assert "的" not in words


# Lists


def test_word_list_applies_given_tag(tmp_path: Path) -> None:
    path = write(tmp_path / "places.txt", "南京", "北京大学", "人")
    assert tags_by_word(word_list(path, tag="place")()) == {"南京": "place", "北京大学": "place"}
    assert tags_by_word(word_list(str(path))()) == {"南京": "", "北京大学": ""}


def test_word_list_filters_by_frequency_and_length(tmp_path: Path) -> None:
    path = write(tmp_path / "places.txt", "南京\t120", "北京\t7", "北京大学\t100", "上海\t8")
    assert word_list(path, min_frequency=8)().words == ["南京", "北京大学", "上海"]
    assert word_list(path, min_frequency=8, max_length=3)().words == ["南京", "上海"]


def test_directory_tags_words_with_file_names(tmp_path: Path) -> None:
    write(tmp_path / "THUOCL_food.txt", "饺子\t3", "北京烤鸭\t9")
    write(tmp_path / "THUOCL_diming.txt", "北京\t3", "饺子\t1")
    lexicon = word_list(tmp_path)()
    assert tags_by_word(lexicon) == {"北京": "THUOCL_diming", "饺子": "THUOCL_diming", "北京烤鸭": "THUOCL_food"}
    assert set(tags_by_word(word_list(tmp_path, tag="")()).values()) == {""}
    assert set(tags_by_word(word_list(tmp_path, tag="x")()).values()) == {"x"}


def test_min_frequency_without_frequencies_raises_error(tmp_path: Path) -> None:
    path = write(tmp_path / "mixed.txt", "南京\t3", "北京")
    with pytest.raises(
        ValueError, match=r"mixed.txt:2: '北京' has no frequency, but min_frequency is \d+. Set min_frequency to 0"
    ):
        word_list(path, min_frequency=1)()


def test_missing_list_raises_error_on_load(tmp_path: Path) -> None:
    source = word_list(tmp_path / "nowhere.txt")
    with pytest.raises(ValueError, match=r"nowhere\.txt: cannot be read: No such file"):
        source()


# Vectors


def test_vector_file_provides_words(tmp_path: Path) -> None:
    """Only strings of two to ten characters are words. Vector values are not parsed."""
    long = "一二三四五六七八九十"
    path = write(tmp_path / "w.vec", "5 2", "</s> 1 2", "南京 x y", "人 0.3 0.4", f"{long} 1 2", f"{long}一 1 2")
    assert vectors_lexicon(path)().words == ["</s>", "南京", long]


def test_spacy_vectors_provide_words(tmp_path: Path) -> None:
    nlp = spacy.blank("zh")
    for word in ("南京", "人", "清华大学"):
        nlp.vocab.set_vector(word, cast(Floats1d, np.ones(2, dtype=np.float32)))
    nlp.to_disk(tmp_path)
    assert set(vectors_lexicon(tmp_path)().words) == {"南京", "清华大学"}


def test_missing_vectors_raise_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere: cannot be read: No such file"):
        vectors_lexicon(tmp_path / "nowhere")()


# Joined sources


def test_joined_sources_keep_first_tag_of_duplicate_word(tmp_path: Path) -> None:
    places = write(tmp_path / "places.txt", "南京", "长江")
    people = write(tmp_path / "people.txt", "长江", "小明")
    joined = joined_lexicon(word_list(places, tag="place"), word_list(people, tag="person"), word_list(people))
    assert tags_by_word(joined()) == {"南京": "place", "长江": "place", "小明": "person"}


# All sources


def test_empty_sources_give_empty_lexicon(tmp_path: Path) -> None:
    for source in (word_list(write(tmp_path / "empty.txt")), joined_lexicon()):
        assert len(source()) == 0


@pytest.mark.parametrize(
    "source",
    [
        jieba_lexicon(),
        word_list("words.txt", "place"),
        vectors_lexicon("words.vec"),
        joined_lexicon(jieba_lexicon(), word_list("words.txt")),
    ],
)
def test_sources_are_lazy_and_picklable(source: LexiconSource) -> None:
    # The files do not exist, so a source that reads them early would fail.
    assert callable(pickle.loads(pickle.dumps(source)))


# Lines and files


def read(
    path: Path, content: str | bytes, tag: str = "", *, has_tags: bool = False, allow_jieba_format: bool = False
) -> list[tuple[str, int | None, str]]:
    path.write_bytes(content if isinstance(content, bytes) else content.encode("utf8"))
    entries = read_list(path, tag, has_tags=has_tags, allow_jieba_format=allow_jieba_format)
    return [(entry.word, entry.frequency, entry.tag) for entry in entries]


@pytest.mark.parametrize(
    ("line", "expected", "with_tags"),
    [
        ("南京", ("南京", None, "x"), ("南京", None, "x")),
        ("New York ", ("New York", None, "x"), ("New York", None, "x")),
        ("#标签", ("#标签", None, "x"), ("#标签", None, "x")),
        ("南京\t120", ("南京", 120, "x"), ("南京", 120, "x")),
        # THUOCL contains such lines.
        ("丁香\t125472s", ("丁香", 125472, "x"), ("丁香", 125472, "x")),
        ("星塔村 \t 3? ", ("星塔村", 3, "x"), ("星塔村", 3, "x")),
        ("iPhone 15 Pro", ("iPhone 15 Pro", None, "x"), ("iPhone 15 Pro", None, "x")),
        ("AT&T 3 nz", ("AT&T 3 nz", None, "x"), ("AT&T", 3, "nz")),
        ("a b 3 nz", ("a b 3 nz", None, "x"), ("a b", 3, "nz")),
        ("iphone 15 pro", ("iphone 15 pro", None, "x"), ("iphone 15 pro", None, "x")),
        ("巴黎\tns", None, ("巴黎", None, "ns")),
        ("华为\t5G", ("华为", 5, "x"), ("华为", None, "5G")),
        ("立方体\t3D_MODEL", ("立方体", 3, "x"), ("立方体", None, "3D_MODEL")),
        ("巴黎\t7\t5G", None, ("巴黎", 7, "5G")),
        ("巴黎\t3.5", ("巴黎", 3, "x"), ("巴黎", 3, "x")),
        ("巴黎\t3\tns", None, ("巴黎", 3, "ns")),
        ("巴黎\t\t", ("巴黎", None, "x"), ("巴黎", None, "x")),
        ("巴黎\tns\t3", None, None),
        ("巴黎\t3\tns\tx", None, None),
        ("巴黎\t-3", None, ("巴黎", None, "-3")),
    ],
)
def test_list_lines_are_parsed(
    tmp_path: Path,
    line: str,
    expected: tuple[str, int | None, str] | None,
    with_tags: tuple[str, int | None, str] | None,
) -> None:
    for has_tags, entry in ((False, expected), (True, with_tags)):
        content = f"\ufeff头\r\n\n \t\n{line}\n尾"
        if entry:
            found = read(tmp_path / "list.txt", content, "x", has_tags=has_tags, allow_jieba_format=has_tags)
            assert found == [("头", None, "x"), entry, ("尾", None, "x")]
        else:
            with pytest.raises(ValueError, match=r"list.txt:4: expected `word`, .*, but got '巴黎.* Repair or remove"):
                read(tmp_path / "list.txt", content, "x", has_tags=has_tags)


def test_jieba_format_requires_known_jieba_tag(tmp_path: Path) -> None:
    content = "iphone 15 pro\n北京 3 ns\n郭靖 3 nrt\n"
    found = [("iphone 15 pro", None, ""), ("北京", 3, "ns"), ("郭靖", 3, "nrt")]
    assert read(tmp_path / "list.txt", content, has_tags=True, allow_jieba_format=True) == found
    assert read(tmp_path / "list.txt", content, has_tags=True) == [(line, None, "") for line in content.splitlines()]


def test_jieba_format_is_ignored_if_label_is_given(tmp_path: Path) -> None:
    content = "iphone 15 pro\ngalaxy 20 s\n北京 3 ns\n南京\tCITY\n"
    words = [("iphone 15 pro", None, "PRODUCT"), ("galaxy 20 s", None, "PRODUCT"), ("北京 3 ns", None, "PRODUCT")]
    found = read(tmp_path / "list.txt", content, "PRODUCT", has_tags=True, allow_jieba_format=True)
    assert found == [*words, ("南京", None, "CITY")]


def test_huge_frequency_is_capped(tmp_path: Path) -> None:
    assert read(tmp_path / "list.txt", "南京\t" + "9" * 10_000) == [("南京", 10**18 - 1, "")]


def test_directory_lists_files_in_sorted_order(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.txt", "a.txt.xz", "LICENSE", "c.txt.gz", "d.txt.bz2", "e.vec", ".hidden.txt", "sub/f.txt"):
        write(tmp_path / name)
    assert [path.name for path in list_files(tmp_path)] == ["a.txt.xz", "b.txt", "c.txt.gz", "d.txt.bz2", "f.txt"]


def test_single_file_with_any_suffix_is_accepted(tmp_path: Path) -> None:
    path = write(tmp_path / "words.lst")
    assert list_files(path) == [path]


def test_directory_without_lists_raises_error(tmp_path: Path) -> None:
    write(tmp_path / "README.md")
    with pytest.raises(ValueError, match=r"the directory contains no \.txt files"):
        list_files(tmp_path)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("THUOCL_law.txt", "THUOCL_law"), ("a.b.txt.xz", "a.b"), ("words.lst", "words"), ("words", "words")],
)
def test_list_name_is_file_name_without_suffixes(name: str, expected: str) -> None:
    assert list_name(Path("lists") / name) == expected
