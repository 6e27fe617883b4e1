"""Test how `suggest`, `silver` and `trim` find files of texts and stream their records."""

from __future__ import annotations

from pathlib import Path

import pytest

from spacy_tener.annotate.records import find_texts, stream_records
from spacy_tener.errors import UserError

TEXT = "第一条 为了规范\n\n第二条\n"


def write(path: Path, text: str = TEXT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf8")
    return path


# Finding files


def test_find_texts_keeps_order_and_duplicates(tmp_path: Path) -> None:
    a, b = write(tmp_path / "b.txt"), write(tmp_path / "a.unknown")
    assert find_texts([a, b, a, "-"]) == ([str(a), str(b), str(a), "-"], [])


def test_directory_yields_sorted_texts_and_reports_other_files(tmp_path: Path) -> None:
    texts = [write(tmp_path / name) for name in ("a.txt", "b.jsonl.gz", "c.spacy", "d/e.txt.xz", "f.csv")]
    left_out = [write(tmp_path / "chars.vec"), write(tmp_path / "z.conll")]
    write(tmp_path / ".git" / "hidden.txt")
    assert find_texts([tmp_path]) == ([*map(str, texts)], [*map(str, left_out)])


# Reading records


@pytest.mark.parametrize("ending", ["jsonl", "ndjson", "json"])
def test_json_lines_records_keep_all_fields(tmp_path: Path, ending: str) -> None:
    path = write(
        tmp_path / f"a.{ending}", '{"text": "一\\n二 ", "id": 7, "label": []}\n\n{"text": " "}\n{"text": "三"}\n'
    )
    assert list(stream_records([str(path)])) == [{"text": "一\n二 ", "id": 7, "label": []}, {"text": "三"}]


def test_wrong_encoding_raises_error_with_fix(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(TEXT, encoding="gb18030")
    with pytest.raises(UserError, match=r"a\.txt:1: character 1 of the line is not UTF-8\. Save the file as UTF-8\."):
        list(stream_records([str(tmp_path / "a.txt")]))


def test_csv_without_text_column_error_names_the_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,words\n1,王小明\n")
    with pytest.raises(
        UserError, match=r'a\.csv:2: there is no text\. Each record needs a field "text" with a text in UTF-8'
    ):
        list(stream_records([str(path)]))
