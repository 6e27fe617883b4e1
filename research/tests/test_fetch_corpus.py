"""Tests of the download of a single corpus of project.yml."""

from __future__ import annotations

import hashlib
from http.client import IncompleteRead
from io import BytesIO
from pathlib import Path

import pytest
import srsly

from research import fetch_corpus


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Write a project.yml with a file for each of two corpora. Return the addresses of the files, by corpus."""
    monkeypatch.chdir(tmp_path)
    assets, files = [], {}
    for corpus in ("weibo", "resume"):
        files[corpus] = tmp_path / f"{corpus}.txt"
        files[corpus].write_text(corpus)
        checksum = hashlib.md5(corpus.encode()).hexdigest()
        assets.append({"dest": f"assets/{corpus}/train", "url": files[corpus].as_uri(), "checksum": checksum})
    srsly.write_yaml("project.yml", {"assets": assets})
    return files


def test_only_files_of_selected_corpus_are_downloaded(sources: dict[str, Path]) -> None:
    fetch_corpus.main(["weibo"])
    assert Path("assets/weibo/train").read_text() == "weibo"
    assert not Path("assets/resume").exists()


def test_names_include_universal_ner(sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_corpus, "ALSO_NEEDED", {"weibo": "resume"})
    fetch_corpus.main(["weibo"])
    assert Path("assets/weibo/train").read_text() + Path("assets/resume/train").read_text() == "weiboresume"


def test_existing_file_is_replaced_only_if_checksum_is_wrong(sources: dict[str, Path]) -> None:
    Path("assets/weibo").mkdir(parents=True)
    Path("assets/weibo/train").write_text("wei")  # an interrupted download
    fetch_corpus.main(["weibo"])
    sources["weibo"].unlink()
    fetch_corpus.main(["weibo"])
    assert Path("assets/weibo/train").read_text() == "weibo"


@pytest.mark.parametrize("content", [None, "changed"])
def test_failed_download_ends_with_message(
    sources: dict[str, Path], content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    sources["weibo"].unlink()
    if content:
        sources["weibo"].write_text(content)
    with pytest.raises(SystemExit) as stop:
        fetch_corpus.main(["weibo"])
    printed = " ".join(capsys.readouterr().out.split())
    reason = "has a wrong checksum" if content else "cannot be downloaded: "
    assert (stop.value.code, "assets/weibo/train: " in printed, reason in printed) == (1, True, True)
    assert not Path("assets/weibo/train").exists()


def test_interrupted_download_ends_with_message(
    sources: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Response(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            raise IncompleteRead(b"wei", 3)

    monkeypatch.setattr(fetch_corpus, "urlopen", lambda url, timeout: Response())
    with pytest.raises(SystemExit):
        fetch_corpus.main(["weibo"])
    assert "assets/weibo/train: cannot be downloaded: IncompleteRead" in " ".join(capsys.readouterr().out.split())
    assert not Path("assets/weibo/train").exists()
