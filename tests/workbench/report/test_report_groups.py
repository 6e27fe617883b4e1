"""What runs are grouped by: their places and settings of their configs."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import make_run

from spacy_tener.errors import RemedyError
from spacy_tener.workbench.report.runs import Run, find_runs, group_runs, has_setting, order_of, setting
from spacy_tener.workbench.report.scores import Summary

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
    assert has_setting(runs[0], name)


def test_an_end_of_several_paths_is_an_error_that_lists_them(runs: list[Run]) -> None:
    with pytest.raises(RemedyError, match=r"several settings end in 'width'.*components\.ner\.model\.tok2vec\.width"):
        setting(runs[0], "width")


def test_a_setting_that_is_not_there_is_an_error(runs: list[Run]) -> None:
    with pytest.raises(RemedyError, match="weibo/a/1: its config has no setting 'alpha'"):
        setting(runs[0], "alpha")
    assert not has_setting(runs[0], "alpha")
    assert not has_setting(runs[0], "c.k"), "the end of a path begins at a dot"


def test_the_runs_own_config_serves_where_the_pipeline_is_gone(runs: list[Run]) -> None:
    config = runs[0].folder / "model-best" / "config.cfg"
    config.rename(runs[0].folder / "config.cfg")
    assert setting(runs[0], "k") == 10


def test_a_config_that_is_missing_or_broken_is_named(runs: list[Run]) -> None:
    config = runs[0].folder / "model-best" / "config.cfg"
    config.write_text("k = 3\n", encoding="utf8")
    with pytest.raises(RemedyError, match=r"config\.cfg:1: 'k = 3' is neither"):
        setting(runs[0], "k")
    config.unlink()
    with pytest.raises(RemedyError, match=r"neither model-best/config\.cfg nor config\.cfg"):
        setting(runs[0], "k")


def test_variables_are_filled_in(tmp_path: Path) -> None:
    make_run(tmp_path, "weibo/a/1", f=0.5, config="[system]\nseed = 7\n\n[training]\nseed = ${system.seed}\n")
    (run,) = find_runs([tmp_path]).runs
    assert setting(run, "training.seed") == 7


def test_runs_are_grouped_by_corpus_and_system(runs: list[Run]) -> None:
    groups = group_runs(reversed(runs))
    assert [group.key for group in groups] == [("weibo", "a"), ("weibo", "b"), ("weibo", "c")]
    assert [[run.seed for run in group.runs] for group in groups] == [[1, 2], [1, 2], [1]]
    assert groups[0].value("system") == "a"


def test_numbers_are_ordered_as_numbers(runs: list[Run]) -> None:
    assert [group.key for group in group_runs(runs, ["k"])] == [(9,), (10,), (100,)]
    assert sorted(["b", 10, 9.5, True, None, "a"], key=order_of) == [9.5, 10, None, True, "a", "b"]


def test_settings_that_are_lists_group_too(runs: list[Run]) -> None:
    assert [group.key for group in group_runs(runs[:2], ["kernels"])] == [("[1, 3]",)]


def test_a_seed_twice_in_a_group_is_an_error_that_says_what_to_do(runs: list[Run]) -> None:
    with pytest.raises(RemedyError, match=r"corpus weibo: .*weibo/a/1 and weibo/b/1.*apart"):
        group_runs(runs, ["corpus"])
    with pytest.raises(RemedyError, match="all runs together: seed 1"):
        group_runs(runs, [])


def test_a_summary_is_over_the_runs_that_have_something_to_measure(runs: list[Run]) -> None:
    group = group_runs(runs)[0]
    assert group.summary(lambda run: run.test.speed) == Summary(mean=1500.0, sd=pytest.approx(500 * 2**0.5), n=2)
    assert group.summary(lambda run: run.test.speed if run.seed == 2 else None) == Summary(mean=2000.0, sd=None, n=1)
    assert group.summary(lambda run: None) is None
    assert group.scores("f") == [1.0, 1.0]
