"""Raw text from files of every kind, paragraph by paragraph."""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc, DocBin

from spacy_tener.errors import InputError
from spacy_tener.workbench.raw_text import find_texts, read_texts

TEXT = "第一条 为了规范\n\n第二条\n"


def write(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf8")
    return path


# Which files


def test_files_are_read_in_the_order_given_and_as_often(tmp_path: Path) -> None:
    a, b = write(tmp_path / "b.txt"), write(tmp_path / "a.unknown")
    assert find_texts([a, b, a, "-"]) == ([str(a), str(b), str(a), "-"], [])


def test_directory_gives_its_texts_sorted_and_names_the_other_files(tmp_path: Path) -> None:
    wanted = [write(tmp_path / name) for name in ("a.txt", "b.jsonl.gz", "c.spacy", "d/e.txt.xz")]
    other = [write(tmp_path / "chars.vec"), write(tmp_path / "z.conll")]
    write(tmp_path / ".git" / "hidden.txt")
    assert find_texts([tmp_path]) == ([str(path) for path in wanted], list(map(str, other)))


def test_directory_without_texts_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "vectors.json")
    with pytest.raises(InputError, match=r"no text among its 1 file.*\.txt, \.jsonl or \.spacy"):
        find_texts([tmp_path])


# What is in them


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json"])
def test_texts_of_json_lines_are_read_paragraph_by_paragraph(tmp_path: Path, ending: str) -> None:
    path = write(tmp_path / f"a.{ending}", '{"text": "一\\n二", "label": []}\n\n{"text": "三"}\n')
    assert list(read_texts(path)) == ["一", "二", "三"]


def test_docs_of_a_spacy_file_are_read(tmp_path: Path) -> None:
    vocab = spacy.blank("zh").vocab
    words = [["上", "海"], ["a", "b", "\n", "c"]]
    spaces = [[False] * 2, [True, False, False, False]]
    docs = [Doc(vocab, words=words[n], spaces=spaces[n]) for n in range(2)]
    DocBin(docs=docs).to_disk(tmp_path / "train.spacy")
    assert list(read_texts(tmp_path / "train.spacy")) == ["上海", "a b", "c"]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv.gz", "a.parquet"])
def test_a_table_is_no_text(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="is a table"):
        list(read_texts(write(tmp_path / name, "id,text\n1,王小明\n")))
