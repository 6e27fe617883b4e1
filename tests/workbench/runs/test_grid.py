"""Systems x corpora x seeds: their configs, and what of them is left to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_trainings import make_config, tener, write_corpus
from spacy.cli.init_config import init_config
from spacy.util import load_config, load_config_from_str
from thinc.api import Config

from spacy_tener.workbench.composing.compose import compose
from spacy_tener.workbench.composing.files import ConfigError
from spacy_tener.workbench.runs.fingerprint import digest, fingerprint
from spacy_tener.workbench.runs.grid import Cell, Grid, plan, task
from spacy_tener.workbench.runs.output_folder import CHECKPOINT, Record, write_record

CONFIGS = Path(__file__).parents[3] / "configs"
WINDOW = "[components.tener_ner]\nwindow = 150\n"
OVERLAP = "[components.tener_ner]\nwindow = 160\noverlap = 5\n"


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """Two corpora with their configs, and two overlays."""
    for corpus in ("red", "blue"):
        for part in ("train", "dev", "test"):
            write_corpus(tmp_path / "data" / corpus / f"{part}.spacy", 6)
        write_config(tmp_path, corpus)
    (tmp_path / "configs" / "models").mkdir()
    (tmp_path / "configs" / "models" / "short.cfg").write_text(WINDOW, encoding="utf8")
    (tmp_path / "configs" / "models" / "lap.cfg").write_text(OVERLAP, encoding="utf8")
    return tmp_path


def write_config(folder: Path, corpus: str, **changes: Any) -> None:
    config = make_config(folder, tener(), before_update=None)
    config["paths"] = {"train": None, "dev": None}
    config["corpora"]["train"].update(changes)
    (folder / "configs").mkdir(exist_ok=True)
    config.to_disk(folder / "configs" / f"{corpus}.cfg")


def grid(here: Path, **wanted: Any) -> Grid:
    defaults: dict[str, Any] = {"corpora": ["red"], "systems": ["tener"], "seeds": [1]}
    return Grid(output=here / "out", data=here / "data", configs=here / "configs", **{**defaults, **wanted})


def config_of(cell: Cell) -> Config:
    return load_config_from_str(cell.config, interpolate=True)


def refusal(wanted: Grid) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        plan(wanted)
    return caught.value


# What is to be trained


def test_each_corpus_has_each_system_with_each_seed_once(here: Path) -> None:
    cells = plan(grid(here, corpora=["red", "blue", "red"], systems=["tener", "short"], seeds=[1, 2, 1]))
    names = [
        f"{corpus}/{system}/{seed}" for corpus in ("red", "blue") for system in ("tener", "short") for seed in (1, 2)
    ]
    assert [cell.name for cell in cells] == names
    assert [cell.folder for cell in cells] == [here / "out" / name for name in names]


def test_a_config_is_complete_with_its_seed_data_and_log(here: Path) -> None:
    (cell,) = plan(grid(here, seeds=[7]))
    config = config_of(cell)
    assert (config["system"]["seed"], config["training"]["seed"]) == (7, 7)
    assert config["corpora"]["train"]["path"] == str(here / "data" / "red" / "train.spacy")
    assert config["corpora"]["dev"]["path"] == str(here / "data" / "red" / "dev.spacy")
    assert config["training"]["logger"]["@loggers"] == "spacy.ConsoleLogger.v3"
    assert config["training"]["logger"]["output_file"] == str(cell.folder / "training.jsonl")
    assert cell.test == here / "data" / "red" / "test.spacy"


def test_a_name_is_made_of_overlays_and_the_base_has_two_names(here: Path) -> None:
    systems = ["tener", "base", "short", "lap", "short+lap", "lap+short", "tener+short"]
    cells = plan(grid(here, systems=systems))
    found = [config_of(cell)["components"]["tener_ner"] for cell in cells]
    windows = [(each["window"], each["overlap"]) for each in found]
    assert windows == [(200, 40), (200, 40), (150, 40), (160, 5), (160, 5), (150, 5), (150, 40)]


def test_an_overlay_of_the_name_goes_before_the_base(here: Path) -> None:
    (here / "configs" / "models" / "tener.cfg").write_text(WINDOW, encoding="utf8")
    cells = plan(grid(here, systems=["tener", "base"]))
    assert [config_of(cell)["components"]["tener_ner"]["window"] for cell in cells] == [150, 200]


def test_settings_go_over_all_files(here: Path) -> None:
    cells = plan(grid(here, systems=["tener", "short"], settings=["components.tener_ner.window=177"]))
    assert [config_of(cell)["components"]["tener_ner"]["window"] for cell in cells] == [177, 177]


def test_own_tokens_are_kept_in_evaluation_where_training_keeps_them(here: Path) -> None:
    write_config(here, "blue", gold_preproc=True)
    assert [cell.gold_preproc for cell in plan(grid(here, corpora=["red", "blue"]))] == [False, True]


@pytest.mark.parametrize("name", ["nothing", "short+nothing", "", "../models/short", "short+"])
def test_an_unknown_overlay_is_named_with_those_there_are(here: Path, name: str) -> None:
    error = refusal(grid(here, systems=[name]))
    assert "there is no overlay" in error.reason
    assert error.remedy == "There are: base, tener, lap, short."


@pytest.mark.parametrize("part", ["train", "dev", "test"])
def test_missing_data_is_named(here: Path, part: str) -> None:
    path = here / "data" / "red" / f"{part}.spacy"
    path.unlink()
    error = refusal(grid(here))
    assert error.reason == f"{path}: there is no such file"
    assert "spacy tener convert" in error.remedy


def test_a_missing_config_is_named(here: Path) -> None:
    (here / "configs" / "red.cfg").unlink()
    assert str(here / "configs" / "red.cfg") in refusal(grid(here)).reason


def test_a_config_that_fixes_its_seed_or_data_is_refused(here: Path) -> None:
    assert "the seed is fixed" in refusal(grid(here, settings=["training.seed=5"])).reason
    write_config(here, "red", path="other.spacy")
    assert "the data is fixed" in refusal(grid(here)).reason


# What is left to do


def fingerprint_of(cell: Cell) -> Any:
    return fingerprint(Config().from_str(cell.config, interpolate=False))


def made(here: Path, *, finished: bool, scored: bool = True) -> Cell:
    """A run as it is left behind: stopped in training, finished, or finished and scored."""
    (cell,) = plan(grid(here))
    cell.folder.mkdir(parents=True)
    if not finished:
        (cell.folder / CHECKPOINT).touch()
        write_record(cell.folder, Record(fingerprint_of(cell)))
        return cell
    (cell.folder / "model-best").mkdir()
    if scored:
        (cell.folder / "metrics.json").write_text("{}", encoding="utf8")
    done = {"step": 1, "best_score": 0.5, "best_step": 1}
    write_record(
        cell.folder, Record(fingerprint_of(cell), finished=done, evaluated=digest(cell.test) if scored else None)
    )
    return cell


def test_a_run_that_is_not_there_is_trained(here: Path) -> None:
    (cell,) = plan(grid(here))
    assert task(cell).kind == "train"


def test_a_stopped_training_goes_on(here: Path) -> None:
    assert task(made(here, finished=False)).kind == "continue"


def test_nothing_is_left_of_what_is_finished_and_scored(here: Path) -> None:
    assert task(made(here, finished=True)).kind == "nothing"


def test_a_finished_training_is_only_scored(here: Path) -> None:
    assert task(made(here, finished=True, scored=False)).kind == "evaluate"


def test_other_data_to_score_on_needs_no_training(here: Path) -> None:
    cell = made(here, finished=True)
    write_corpus(cell.test, 3)
    assert task(cell).kind == "evaluate"
    assert task(cell).why == (f"{cell.test} has other contents",)


@pytest.mark.parametrize("finished", [False, True])
def test_another_config_or_other_data_is_trained_anew(here: Path, finished: bool) -> None:
    cell = made(here, finished=finished)
    (changed,) = plan(grid(here, settings=["training.max_steps=3"]))
    assert task(changed).kind == "anew"
    assert "training.max_steps: was 13, is 3" in task(changed).why
    write_corpus(here / "data" / "red" / "dev.spacy", 3)
    assert task(cell).kind == "anew"
    assert task(cell).why[0] == f"paths.dev: {here / 'data' / 'red' / 'dev.spacy'} has other contents"


def test_another_place_of_the_same_data_is_no_change(here: Path) -> None:
    cell = made(here, finished=True)
    (here / "data").rename(here / "moved")
    (moved,) = plan(replace(grid(here), data=here / "moved"))
    assert moved.config != cell.config
    assert task(moved).kind == "nothing"


def test_a_finished_training_without_its_best_pipeline_is_trained_anew(here: Path) -> None:
    cell = made(here, finished=True)
    (cell.folder / "model-best").rename(cell.folder / "model-last")
    assert task(cell).kind == "anew"


# configs/models/ner.cfg


@pytest.mark.parametrize("base", sorted(path.stem for path in CONFIGS.glob("*.cfg")))
def test_the_overlay_ner_trains_as_spacys_own_config(base: str) -> None:
    corpus = load_config(CONFIGS / f"{base}.cfg")
    ours = compose(CONFIGS / f"{base}.cfg", [CONFIGS / "models" / "ner.cfg"]).config
    spacys = init_config(lang=corpus["nlp"]["lang"], pipeline=["ner"], optimize="efficiency", gpu=False)
    for section in ("training", "components", "initialize"):
        assert ours[section] == spacys[section], section
    assert {**ours["nlp"], "tokenizer": None} == {**spacys["nlp"], "tokenizer": None}
    # The corpus is read as the corpus' config has it.
    assert ours["nlp"]["tokenizer"] == corpus["nlp"]["tokenizer"]
    assert ours["corpora"] == corpus["corpora"]
