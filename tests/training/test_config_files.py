"""Config files: bundled configs and overlays are found by name, others by path."""

from __future__ import annotations

from pathlib import Path

import pytest

from spacy_tener.training.config_files import (
    BASES,
    OVERLAYS,
    ConfigError,
    description,
    find_base,
    find_overlay,
    names_in,
    systems,
)
from spacy_tener.training.overlays import compose


def test_bases_and_overlays_are_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_base("weibo") == BASES / "weibo.cfg"
    assert find_overlay("mect") == OVERLAYS / "mect.cfg"
    assert all(find(name).is_file() for find, folder in FOLDERS for name in names_in(folder))


FOLDERS = [(find_base, BASES), (find_overlay, OVERLAYS)]


def test_file_takes_precedence_over_bundled_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weibo").mkdir()
    assert find_base("weibo") == BASES / "weibo.cfg"
    (tmp_path / "weibo").rmdir()
    (tmp_path / "weibo").write_text("", encoding="utf8")
    assert find_base("weibo") == Path("weibo")


@pytest.mark.parametrize("path", ["my/weibo", "weibo.cfg", "./weibo"])
def test_missing_path_is_not_resolved_as_name(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"weibo(\.cfg)?: cannot be read"):
        compose(path)


def test_unknown_name_error_suggests_existing_names() -> None:
    with pytest.raises(ConfigError, match="no config 'webo'") as similar:
        find_base("webo")
    assert similar.value.fix == "Did you mean weibo?"
    with pytest.raises(ConfigError, match="no overlay 'zzz'") as unknown:
        find_overlay("zzz")
    assert all(name in unknown.value.fix for name in names_in(OVERLAYS))


def test_names_and_paths_compose_same_config() -> None:
    by_name = compose("weibo", ["flat-atssa"], ["training.max_steps=7"])
    by_path = compose(BASES / "weibo.cfg", [OVERLAYS / "flat-atssa.cfg"], ["training.max_steps=7"])
    assert by_name == by_path


def test_bundled_configs_have_descriptions() -> None:
    for name in names_in(OVERLAYS):
        lines = description(OVERLAYS / f"{name}.cfg").splitlines()
        assert 2 <= len(lines) <= 3, name
        assert lines[1].startswith(("Begin here", "Use it ", "Apply it ")), name
    assert systems()[0] == "tener"
    assert {"flat", "ner"} < {*systems()} < {*names_in(OVERLAYS)} - {"vectors", "nested"}
    assert all(description(BASES / f"{name}.cfg") for name in names_in(BASES))
