"""Tests of finding runs, reading their configs, and grouping their seeds."""

from __future__ import annotations

from pathlib import Path

import pytest
from run_directories import Counted, make_run, metrics, write_json

from research.runs import Run, find_runs, group_runs, order_of, setting
from spacy_tener.errors import UserError

COUNTS = {"PER": (6, 2, 4)}


def test_a_run_is_found_from_any_directory_on_the_way_and_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(make_run(tmp_path, "weibo/tener/1", COUNTS))
    roots = [tmp_path, *(tmp_path / name for name in ("weibo", "weibo/tener", "weibo/tener/1")), Path()]
    for folders in (*([root] for root in roots), roots):
        assert [run.name for run in find_runs(folders).runs] == ["weibo/tener/1"]


def test_scores_and_size_are_read(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "weibo/tener/1", COUNTS, dev_f=0.625, config="[nlp]\n")
    (folder / "model-best" / "model").write_bytes(b"x" * 2_000_000)
    (run,) = find_runs([tmp_path]).runs
    size = sum(path.stat().st_size for path in (folder / "model-best").iterdir())
    assert size > 2_000_000
    assert run.megabytes == size / 1e6
    assert run.test.overall.p == 0.75
    assert run.dev is not None
    assert run.dev.overall.f == 0.625


def test_scores_on_dev_of_their_own_file_go_before_the_pipelines(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "weibo/tener/1", COUNTS, dev_f=0.5)
    write_json(folder / "metrics-dev.json", metrics({"PER": (1, 0, 0)}))
    (run,) = find_runs([tmp_path]).runs
    assert run.dev is not None
    assert run.dev.overall.f == 1.0


def test_runs_without_scores_are_unfinished_and_say_how_far_they_came(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/tener/1", COUNTS)
    make_run(tmp_path, "weibo/tener/2")
    (tmp_path / "weibo/tener/3").mkdir()
    (tmp_path / "weibo/tener/3/config.cfg").touch()
    found = find_runs([tmp_path])
    assert [run.name for run in found.runs] == ["weibo/tener/1"]
    assert [(run.name, run.reason) for run in found.unfinished] == [
        ("weibo/tener/2", "no metrics.json: still in training, stopped, or not evaluated"),
        ("weibo/tener/3", "not trained yet, or stopped before the first evaluation"),
    ]


def test_what_is_not_at_the_place_of_a_run_is_left_out_and_named(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo", COUNTS)
    make_run(tmp_path, "weibo/tener/1", COUNTS)
    make_run(tmp_path, "weibo/tener/trial-2", COUNTS)
    found = find_runs([tmp_path])
    assert [run.name for run in found.runs] == ["weibo/tener/1"]
    assert set(found.left_out) == {tmp_path / "weibo", tmp_path / "weibo/tener/trial-2"}


def test_a_pipeline_is_not_searched(tmp_path: Path) -> None:
    folder = make_run(tmp_path, "weibo/tener/1", COUNTS)
    write_json(folder / "model-best/a/b/7/metrics.json", metrics(COUNTS))
    write_json(tmp_path / "other/model-last/a/b/7/metrics.json", metrics(COUNTS))
    assert [run.name for run in find_runs([tmp_path]).runs] == ["weibo/tener/1"]


@pytest.mark.parametrize(
    ("name", "counts"), [("old/weibo/tener/1", COUNTS), ("weibo/tener/01", COUNTS), ("old/weibo/tener/1", None)]
)
def test_a_seed_twice_is_an_error_that_names_both_also_where_one_is_unfinished(
    tmp_path: Path, name: str, counts: Counted | None
) -> None:
    make_run(tmp_path, "weibo/tener/1", COUNTS)
    make_run(tmp_path, name, counts)
    with pytest.raises(UserError, match="weibo, tener: seed 1 is there twice") as error:
        find_runs([tmp_path])
    assert str(tmp_path / "weibo/tener/1") in str(error.value)
    assert str(tmp_path / name) in str(error.value)


def test_runs_can_be_restricted(tmp_path: Path) -> None:
    for name in ("weibo/tener/1", "weibo/ner/1", "resume/tener/1"):
        make_run(tmp_path, name, COUNTS)
    make_run(tmp_path, "weibo/tener/2")
    found = find_runs([tmp_path])
    assert [run.name for run in found.only().runs] == [run.name for run in found.runs]
    only = found.only(corpora=["weibo"], systems=["tener"])
    assert [run.name for run in only.runs] == ["weibo/tener/1"]
    assert [run.name for run in only.unfinished] == ["weibo/tener/2"]
    with pytest.raises(UserError, match=r"No run of this corpus: msra\. There are: resume, weibo"):
        found.only(corpora=["msra"])
    with pytest.raises(UserError, match="No run of this system: mect"):
        found.only(systems=["mect", "tener"])
    with pytest.raises(UserError, match="no run of these"):
        found.only(corpora=["resume"], systems=["ner"])


CONFIG = """
[nlp]
lang = "zh"
batch_size = 16

[components]

[components.ner]
factory = "tener_ner"

[components.ner.model]
width = 32

[components.ner.model.tok2vec]
k = {k}
width = 64
kernels = [1,3]
scale = null
"""


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    for system, seed, k in [("a", 1, 10), ("a", 2, 10), ("b", 1, 9), ("b", 2, 9), ("c", 1, 100)]:
        make_run(tmp_path, f"weibo/{system}/{seed}", f=k / 1000, config=CONFIG.format(k=k), speed=1000.0 * seed)
    return list(find_runs([tmp_path]).runs)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("corpus", "weibo"),
        ("system", "a"),
        ("seed", 1),
        ("components.ner.model.tok2vec.k", 10),
        ("tok2vec.k", 10),
        ("k", 10),
        ("batch_size", 16),
        ("factory", "tener_ner"),
        ("kernels", [1, 3]),
        ("scale", None),
        ("components.ner.model.width", 32),
        ("model.width", 32),
    ],
)
def test_settings_are_found_by_their_path_or_its_end(runs: list[Run], name: str, value: object) -> None:
    assert setting(runs[0], name) == value


def test_an_end_of_several_paths_is_an_error_that_lists_them(runs: list[Run]) -> None:
    with pytest.raises(UserError, match=r"several settings end in 'width'.*components\.ner\.model\.tok2vec\.width"):
        setting(runs[0], "width")


def test_a_setting_that_is_not_there_is_an_error(runs: list[Run]) -> None:
    with pytest.raises(UserError, match="weibo/a/1: its config has no setting 'alpha'"):
        setting(runs[0], "alpha")
    with pytest.raises(UserError, match=r"no setting 'c\.k'"):  # the end of a path has to start after a dot
        setting(runs[0], "c.k")


def test_a_config_that_is_missing_or_broken_is_named(runs: list[Run]) -> None:
    config = runs[0].folder / "model-best" / "config.cfg"
    config.write_text("k = 3\n", encoding="utf8")
    with pytest.raises(UserError, match=r"config\.cfg:1: 'k = 3' is neither"):
        setting(runs[0], "k")
    config.unlink()
    with pytest.raises(UserError, match=r"neither model-best/config\.cfg nor config\.cfg"):
        setting(runs[0], "k")


def test_numbers_are_ordered_as_numbers(runs: list[Run]) -> None:
    assert [group.key for group in group_runs(runs, ["k"])] == [(9,), (10,), (100,)]
    assert sorted(["b", 10, 9.5, True, None, "a"], key=order_of) == [9.5, 10, None, True, "a", "b"]


def test_a_seed_twice_in_a_group_is_an_error_that_says_what_to_do(runs: list[Run]) -> None:
    with pytest.raises(UserError, match=r"corpus weibo: .*weibo/a/1 and weibo/b/1.*setting that differs"):
        group_runs(runs, ["corpus"])
    with pytest.raises(UserError, match="all runs together: seed 1"):
        group_runs(runs, [])
