"""Tests of score tables as text."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from run_directories import make_run

from research.rows import Comparison, Row, ScoreTable, make_table
from research.runs import find_runs
from research.tables import FORMATS, format_table


@pytest.fixture
def report(tmp_path: Path) -> ScoreTable:
    """A table of two systems with two seeds, an unfinished run, and labels of named and nominal mentions."""
    for seed, right in ((1, 10), (2, 14)):
        counts = {"PER.NAM": (right, 6, 20 - right), "PER.NOM": (5, 5, 5)}
        make_run(
            tmp_path, f"weibo/ner/{seed}", {"PER.NAM": (6 + seed, 6, 14 - seed), "PER.NOM": (5, 5, 5)}, speed=500.0
        )
        make_run(tmp_path, f"weibo/mect/{seed}", counts, dev_f=0.5, speed=1500.4)
    make_run(tmp_path, "weibo/mect/3")
    return make_table(find_runs([tmp_path]), baseline="ner", per_label=True, named_nominal=True)


@pytest.fixture
def empty(tmp_path: Path) -> ScoreTable:
    make_run(tmp_path, "weibo/mect/3")
    return make_table(find_runs([tmp_path]))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def markdown_tables(text: str) -> dict[str, list[list[str]]]:
    """Return the cells of each table by its heading."""
    tables: dict[str, list[list[str]]] = {}
    for part in text.split("## ")[1:]:
        title, _, rest = part.partition("\n")
        tables[title] = [cells(line) for line in rest.splitlines() if line.startswith("|")]
    return tables


def test_markdown_has_a_table_for_each_part(report: ScoreTable) -> None:
    tables = markdown_tables(format_table(report, "md"))
    assert list(tables) == ["Test scores", "Test scores by label", "Named and nominal entities", "Unfinished runs"]
    header, dashes, mect, *printed, ner = tables["Test scores"]
    scores = ["corpus", "system", "seeds", "entities", "P", "R", "F1", "dev F1", "tokens/s", "MB"]
    assert header == [*scores, "F1 - ner", "p"]
    assert dashes == ["---"] * len(header)
    # 15 true positives, 26 predicted and 30 gold entities; and 19, 30 and 30.
    assert mect[:4] == ["weibo", "mect", "2", "30"]
    assert mect[4:7] == ["60.51 ± 3.99", "56.67 ± 9.43", "58.45 ± 6.90"]
    assert mect[7:10] == ["50.00 ± 0.00", "1500 ± 0", "0.0"]
    assert mect[10].startswith("+")
    assert ner[10:] == ["", ""]
    assert printed[0][1] == "(MECT, Wu et al. 2021, table 4, pretrained vectors)"
    assert printed[0][6] == "63.30"


def test_every_line_of_a_markdown_table_has_as_many_cells(report: ScoreTable) -> None:
    for table in markdown_tables(format_table(report, "md")).values():
        assert len({len(line) for line in table}) <= 1


@pytest.mark.parametrize(("p", "shown"), [(0.0001, "0.0001"), (0.00009, "<0.0001"), (1.0, "1.0000"), (None, "+0.00")])
def test_a_probability_has_four_digits(p: float | None, shown: str) -> None:
    row = Row(key=("weibo", "a"), versus=Comparison(0.0, p, "bootstrap"))
    text = format_table(ScoreTable(("corpus", "system"), "f", "b", [row], [], [], (), []), "terminal")
    (line,) = [line for line in text.splitlines() if line.startswith("weibo")]
    assert line.split()[-1] == shown


def test_csv_is_one_table_with_all_digits(report: ScoreTable) -> None:
    rows = list(csv.DictReader(io.StringIO(format_table(report, "csv"))))
    assert [row["kind"] for row in rows if not row["source"]] == [
        *["overall"] * 2,
        *["labels"] * 4,
        *["mentions"] * 4,
        "unfinished",
    ]
    mect = rows[0]
    assert (mect["corpus"], mect["system"], mect["seeds"], mect["gold"]) == ("weibo", "mect", "1 2", "30")
    assert float(mect["f_mean"]) == pytest.approx(50 * (30 / 56 + 38 / 60))
    ner = next(row for row in rows if row["system"] == "ner")
    assert float(mect["versus_difference"]) == pytest.approx(float(mect["f_mean"]) - float(ner["f_mean"]))
    assert ner["versus_p"] == ""
    assert rows[-1]["seeds"] == "3"
    assert rows[-1]["reason"].startswith("no metrics.json")


def test_json_holds_everything(report: ScoreTable) -> None:
    data = json.loads(format_table(report, "json"))
    assert data["by"] == ["corpus", "system"]
    assert (data["metric"], data["baseline"]) == ("f", "ner")
    mect = data["overall"][0]
    assert (mect["corpus"], mect["system"], mect["seeds"], mect["source"]) == ("weibo", "mect", [1, 2], "")
    assert mect["f"] == {
        "mean": pytest.approx(50 * (30 / 56 + 38 / 60)),
        "sd": pytest.approx(100 * (38 / 60 - 30 / 56) / 2**0.5),
        "n": 2,
    }
    ner = next(row for row in data["overall"] if row["system"] == "ner")
    assert mect["versus"]["difference"] == pytest.approx(mect["f"]["mean"] - ner["f"]["mean"])
    assert ner["versus"] is None
    assert [row["label"] for row in data["mentions"] if not row["source"]] == ["named", "nominal"] * 2
    assert data["unfinished"] == [
        {
            "corpus": "weibo",
            "system": "mect",
            "seeds": [3],
            "reason": "no metrics.json: still in training, stopped, or not evaluated",
        }
    ]
    assert data["warnings"] == []


def test_p_says_by_which_test_where_there_are_two(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path, f"weibo/a/{seed}", docs=[(1, 0, 1), (seed, 0, 2 - seed)] * 9)
        make_run(tmp_path, f"weibo/b/{seed}", docs=[(2, 1, 0), (2, 1, 0)] * 9)
        make_run(tmp_path, f"weibo/c/{seed}", f=0.1 * seed)
    table = make_table(find_runs([tmp_path]), baseline="a")
    text = format_table(table, "md")
    assert "paired bootstrap over test documents and seeds together (10,000 resamples)" in text
    assert "Marked * are rows of runs without counts per document" in text
    rows = {line[1]: line for line in markdown_tables(text)["Test scores"]}
    assert (rows["c"][-1].endswith("*"), rows["b"][-1].endswith("*")) == (True, False)
    versus = {row["system"]: row["versus"] for row in json.loads(format_table(table, "json"))["overall"]}
    assert (versus["b"]["test"], versus["c"]["test"], versus["a"]) == ("bootstrap", "welch", None)


@pytest.mark.parametrize("format", FORMATS)
def test_without_a_finished_run_every_format_stays_well_formed(empty: ScoreTable, format: str) -> None:
    text = format_table(empty, format)
    assert text.endswith("\n")
    if format == "json":
        assert json.loads(text)["overall"] == []
    if format == "csv":
        assert [row["kind"] for row in csv.DictReader(io.StringIO(text))] == ["unfinished"]
