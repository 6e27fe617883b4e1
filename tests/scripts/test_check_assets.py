"""What is said where a licensed corpus is not at its place."""

from __future__ import annotations

from pathlib import Path

import check_assets
import pytest
import srsly

ROOT = Path(__file__).resolve().parents[2]
ASSETS = [
    {"dest": "assets/news/train.bmes", "description": "News, training part, sold by Nobody"},
    {"dest": "assets/news/test", "description": "News, directory with the test part"},
    {"dest": "assets/newsletter/a.bmes", "description": "Something else", "url": "https://example.org/a.bmes"},
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    srsly.write_yaml(tmp_path / "project.yml", {"assets": ASSETS})
    return tmp_path


def check(project: Path, corpus: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit status, and what was printed."""
    try:
        check_assets.main([corpus, "--project", str(project)])
        status = 0
    except SystemExit as error:
        status = int(error.code or 0)
    return status, " ".join(capsys.readouterr().out.split())


def test_each_missing_file_is_named_with_where_it_comes_from(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = check(project, "news", capsys)
    assert status == 1
    assert "Missing: assets/news/train.bmes" in text
    assert "News, training part, sold by Nobody" in text
    assert "Missing: assets/news/test" in text
    assert "Put your copy there" in text
    assert "newsletter" not in text


def test_what_is_there_is_not_named_as_missing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "assets" / "news" / "test").mkdir(parents=True)
    status, text = check(project, "news", capsys)
    assert (status, "Missing: assets/news/test " in text, "Missing: assets/news/train.bmes" in text) == (1, False, True)


def test_a_corpus_at_its_place_is_good(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "assets" / "news" / "test").mkdir(parents=True)
    (project / "assets" / "news" / "train.bmes").write_text("", encoding="utf8")
    status, text = check(project, "news", capsys)
    assert (status, "There: assets/news/train.bmes, assets/news/test" in text) == (0, True)


def test_a_corpus_that_the_project_does_not_know_is_an_error(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, text = check(project, "letters", capsys)
    assert (status, "project.yml has no assets at assets/letters" in text) == (1, True)


@pytest.mark.parametrize("corpus", ["msra", "ontonotes4", "ontonotes5", "conll2003"])
def test_the_project_names_the_places_of_its_licensed_corpora(corpus: str) -> None:
    places = check_assets.places_of(ROOT, corpus)
    assert len(places) == (2 if corpus == "msra" else 3)
    assert all(place.startswith(f"assets/{corpus}/") for place in places)
