"""Systems x corpora x seeds: what is to be trained, and what of it is there already.

A run lies where `report.runs` looks for it, OUTPUT/CORPUS/SYSTEM/SEED. Its config is that of the corpus,
CONFIGS/CORPUS.cfg, with the overlays that the system's name is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

from thinc.api import Config

from ..composing.compose import compose
from ..composing.files import ConfigError
from ..report.runs import LOG, METRICS, MODEL
from .fingerprint import digest, fingerprint
from .output_folder import standing

BASE_NAMES = ("base", "tener")
"""What the config of a corpus as it is may be called, where no overlay has the name."""
PARTS = ("train", "dev", "test")
_LOGGER = {"@loggers": "spacy.ConsoleLogger.v3", "progress_bar": None, "console_output": True}


@dataclass(frozen=True)
class Grid:
    """What is asked for.

    data: Holds CORPUS/{train,dev,test}.spacy.
    configs: Holds CORPUS.cfg and models/OVERLAY.cfg.
    settings: Each as `section.key=value`, over all files.
    gpu_id: Or -1 for the CPU.
    """

    output: Path
    corpora: Sequence[str]
    systems: Sequence[str]
    seeds: Sequence[int]
    data: Path
    configs: Path
    settings: Sequence[str] = ()
    gpu_id: int = -1


@dataclass(frozen=True)
class Cell:
    """One run.

    config: As text, complete: with its seed, its data and its log.
    gold_preproc: Whether the corpus' own tokens are read in training; then in evaluation as well.
    """

    name: str
    folder: Path
    config: str
    test: Path
    gold_preproc: bool
    gpu_id: int


@dataclass(frozen=True)
class Task:
    """What is left to do for a run, and why."""

    cell: Cell
    kind: Literal["train", "continue", "anew", "evaluate", "nothing"]
    why: tuple[str, ...] = ()


def plan(grid: Grid) -> list[Cell]:
    """All runs, by corpus, system and seed. All that can be wrong with configs and data is found here."""
    cells: list[Cell] = []
    for corpus, system in product(dict.fromkeys(grid.corpora), dict.fromkeys(grid.systems)):
        _check_data(grid, corpus)
        base = grid.configs / f"{corpus}.cfg"
        config = compose(base, list(_overlays(grid.configs, system)), grid.settings).config
        cells.extend(_cell(grid, corpus, system, seed, config) for seed in dict.fromkeys(grid.seeds))
    return cells


def task(cell: Cell) -> Task:
    """What is left to do for a run."""
    config = Config().from_str(cell.config, interpolate=False)
    found = standing(cell.folder, fingerprint(config, use_gpu=cell.gpu_id))
    if found.changes:
        return Task(cell, "anew", found.changes)
    if found.state != "finished":
        return Task(cell, "continue" if found.state == "stopped" else "train")
    if not (cell.folder / MODEL).is_dir():
        return Task(cell, "anew", (f"{MODEL} is not there",))
    if not (cell.folder / METRICS).is_file():
        return Task(cell, "evaluate")
    if found.record is None or found.record.evaluated != digest(cell.test):
        return Task(cell, "evaluate", (f"{cell.test} has other contents",))
    return Task(cell, "nothing")


def _cell(grid: Grid, corpus: str, system: str, seed: int, composed: Config) -> Cell:
    folder = grid.output / corpus / system / str(seed)
    data = {part: grid.data / corpus / f"{part}.spacy" for part in PARTS}
    config = composed.copy()
    config["system"]["seed"] = seed
    config["paths"].update(train=str(data["train"]), dev=str(data["dev"]))
    config["training"]["logger"] = {**_LOGGER, "output_file": str(folder / LOG)}
    reader = _train_corpus(config, corpus)
    if config.interpolate()["training"]["seed"] != seed:
        raise ConfigError(f"{corpus}, {system}: the seed is fixed", "Let [training] have seed = ${system.seed}.")
    if reader.get("path") != str(data["train"]):
        raise ConfigError(f"{corpus}, {system}: the data is fixed", "Let [corpora.train] have path = ${paths.train}.")
    return Cell(
        name=f"{corpus}/{system}/{seed}",
        folder=folder,
        config=config.to_str(interpolate=False) + "\n",
        test=data["test"],
        gold_preproc=bool(reader.get("gold_preproc")),
        gpu_id=grid.gpu_id,
    )


def _train_corpus(config: Config, corpus: str) -> dict[str, Any]:
    """The section of the reader that training takes its examples from."""
    section: Any = config.interpolate()
    for name in section["training"]["train_corpus"].split("."):
        section = section.get(name) if isinstance(section, dict) else None
    if not isinstance(section, dict):
        raise ConfigError(f"{corpus}: training.train_corpus names no section", "Check the config of the corpus.")
    return section


def _overlays(configs: Path, system: str) -> Iterator[Path]:
    """The files that a system's name is made of."""
    for name in system.split("+"):
        path = configs / "models" / f"{name}.cfg"
        if path.is_file() and Path(name).name == name:
            yield path
        elif name not in BASE_NAMES:
            there = sorted(each.stem for each in path.parent.glob("*.cfg"))
            remedy = f"There are: {', '.join([*BASE_NAMES, *(n for n in there if n not in BASE_NAMES)])}."
            raise ConfigError(f"{system}: there is no overlay {path}", remedy)


def _check_data(grid: Grid, corpus: str) -> None:
    for part in PARTS:
        path = grid.data / corpus / f"{part}.spacy"
        if not path.is_file():
            remedy = f"Make it: python -m spacy tener convert FILES {path.parent}, or name another place by --data."
            raise ConfigError(f"{path}: there is no such file", remedy)
