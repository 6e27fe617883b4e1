"""The script that trains pipelines, packages them as wheels, and tests the wheels in an empty environment."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import make_pipelines
import pytest
from make_pipelines import Recipe, main, write_index
from small_systems import UNSEEN, trained


@pytest.mark.slow
def test_script_builds_and_tests_wheel_with_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = {"name": "Chinese sample corpus", "license": "CC0-1.0", "author": "spacy_tener"}
    recipe = Recipe(
        "sample", "sample_quick", "CC0-1.0", source, ("It learned for a minute.",), lambda _: trained("tener")
    )
    monkeypatch.setattr(make_pipelines, "RECIPES", {"sample": recipe})
    monkeypatch.setitem(make_pipelines.TEXTS, "zh", UNSEEN)
    packages = tmp_path / "packages"
    # research/convert_corpus.py writes to corpus/, as for the project.
    main(["sample", f"--output={packages}", f"--work={tmp_path / 'work'}"])
    wheel = packages / "zh_sample_quick-1.0.0-py3-none-any.whl"
    assert f"{wheel.name}: " in capsys.readouterr().out
    assert "- It learned for a minute." in (packages / f"{wheel.stem}.md").read_text(encoding="utf8")
    table = (packages / "README.md").read_text(encoding="utf8")
    assert "Chinese sample corpus | CC0-1.0 |" in table
    assert "[spacy_tener-" not in table
    for line in (packages / "SHA256SUMS").read_text(encoding="utf8").splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((packages / name).read_bytes()).hexdigest() == digest
    assert len(list(packages.glob("*.whl"))) == 2


def test_index_table_excludes_wheel_of_this_package(tmp_path: Path) -> None:
    wheel = tmp_path / "spacy_tener-1.0.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("spacy_tener/about.py", "")
    write_index(tmp_path)
    assert wheel.name in (tmp_path / "SHA256SUMS").read_text(encoding="utf8")
    page = (tmp_path / "README.md").read_text(encoding="utf8")
    assert f"[{wheel.name}]" not in page
    assert f"pip install {wheel.name} NAME.whl" in page


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["weiboo"], "unknown: weiboo; there are weibo"),
        (["wnut17-small", "--tweets", "none.txt"], "none.txt is missing"),
        (["uner-zh", "--posts", "none.txt"], "none.txt is missing: name it by --posts"),
    ],
    ids=["name", "tweets", "posts"],
)
def test_invalid_argument_raises_error_before_training(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as error:
        main([*arguments, f"--output={tmp_path / 'packages'}"])
    assert error.value.code == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "packages").exists()
