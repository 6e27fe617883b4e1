"""Hyperparameter search: trainings with settings sampled from a search space, all recorded.

The trials are in DIR/study.db, which optuna's own tools read. Each has a directory:

    DIR/trials/0007/config.cfg, training.jsonl, output.log    config, scores, and output of `spacy train`
    DIR/trials/0007/model-best/                               of the best trial only, unless all are to be kept
    DIR/trials.csv, trials.json, best.cfg                     rewritten after each trial

A search may be killed at any time. The next call marks the trial that was running as interrupted, and repeats it under
a new number.
"""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from thinc.api import Config

from spacy_tener.errors import check_choice
from spacy_tener.files import locked, write_text
from spacy_tener.workbench.composing.compose import CONFIG, compose, with_settings
from spacy_tener.workbench.composing.files import (
    OVERLAYS,
    ConfigError,
    corpus_reader,
    did_you_mean,
    find_overlay,
    keys,
    missing_requirements,
    names_in,
    read_config,
)
from spacy_tener.workbench.runs.processes import Processes
from spacy_tener.workbench.runs.training import MODEL, TrainingResult, TrainingRun, Watch, train

from .engines import Engine, Task, run_tasks
from .on_ray import shared
from .search_space import Space, as_settings

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

SAMPLERS = ("random", "tpe")
COLUMNS = ("number", "state", "score", "seconds", "again_of", "reason")
_STUDY, _STUDY_NAME, _LOCK = "study.db", "spacy_tener", ".lock"
_STATES = {"COMPLETE": "done", "FAIL": "failed", "PRUNED": "pruned", "RUNNING": "running", "WAITING": "waiting"}


@dataclass(frozen=True)
class SearchPlan:
    """A config and its search space.

    base, overlays, settings: The config, as arguments of `compose`.
    space: The settings to sample.
    """

    base: Path | str
    overlays: tuple[Path | str, ...]
    settings: tuple[str, ...]
    space: Space
    seed: int = 0
    sampler: str = "random"

    def config(self, values: Mapping[str, Any]) -> Config:
        """Return the config with sampled values."""
        return with_settings(self.fixed, as_settings(values), "sampled from the space:")

    @cached_property
    def fixed(self) -> Config:
        """The config before any setting is sampled."""
        return compose(self.base, self.overlays, self.settings)

    @property
    def described(self) -> dict[str, Any]:
        """The plan as JSON, to compare it with that of an earlier call."""
        text = self.fixed.to_str(interpolate=False)
        return {"config": text, "space": self.space.described, "seed": self.seed, "sampler": self.sampler}

    def check(self) -> None:
        """Refuse a space that does not fit the config."""
        check_choice("sampler", self.sampler, SAMPLERS)
        existing = list(keys(self.fixed))
        for name in self.space.settings:
            if name not in existing:
                having = [overlay for overlay in names_in(OVERLAYS) if name in keys(read_config(find_overlay(overlay)))]
                otherwise = "Only settings of the filled config can be sampled."
                remedy = did_you_mean(name, existing, otherwise)
                if having:
                    remedy = f"Name an overlay that has it: {' or '.join(having)}."
                raise ConfigError(f"The config has no '{name}', which the search space sets", remedy)
        self.config(self.space.values(self.space.example()))

    def check_files(self) -> None:
        """Refuse a config that lacks corpora, other files or packages."""
        problems = missing_requirements(self.fixed)
        for part in ("train", "dev"):
            path = corpus_reader(self.fixed, f"{part}_corpus").get("path", ".")
            if not path or not Path(path).exists():
                problems.append(f"There is no {path or part + ' corpus'}: give --set paths.{part}={part}.spacy.")
        if problems:
            raise ConfigError("Training needs packages or files that are missing", "\n".join(problems))


@dataclass(frozen=True)
class TrialRow:
    """A trial.

    state: "done", "failed", "pruned" (others were better at the same step), "interrupted" (the search was killed),
        "running", "waiting".
    score: The best F1 on dev, 0 to 1.
    again_of: The interrupted trial that it repeats.
    reason: The reason of a failure.
    values: The sampled settings; empty until all are sampled.
    """

    number: int
    state: str
    score: float | None
    seconds: float | None
    again_of: int | None
    reason: str | None
    values: dict[str, Any]

    @classmethod
    def of(cls, trial: FrozenTrial, space: Space) -> TrialRow:
        attributes, state = trial.user_attrs, _STATES[trial.state.name]
        if state == "failed" and not attributes.get("reason"):  # a killed search writes no reason
            state = "interrupted"
        return cls(
            number=trial.number,
            state=state,
            score=trial.value if state == "done" else attributes.get("score"),
            seconds=attributes.get("seconds"),
            again_of=attributes.get("again_of"),
            reason=attributes.get("reason"),
            values=space.values(trial.params) if set(trial.params) == set(space.draws) else {},
        )

    @property
    def ended(self) -> bool:
        return self.state in ("done", "failed", "pruned")


@dataclass(frozen=True)
class Search:
    """A search in a directory, new or resumed. Made by `open_search`.

    gpu_id: The GPU, or -1 for the CPU.
    code: A Python file with registered functions to import.
    prune: Stop a training whose F1 on dev is below the median of the others at the same step.
    keep_models: Keep the pipelines of all trials.
    """

    plan: SearchPlan
    folder: Path
    study: Study
    gpu_id: int = -1
    code: Path | None = None
    prune: bool = False
    keep_models: bool = False

    @property
    def rows(self) -> list[TrialRow]:
        """Rows of the trials, in their order."""
        return [TrialRow.of(trial, self.plan.space) for trial in self.study.get_trials(deepcopy=False)]

    @property
    def best(self) -> TrialRow | None:
        """The trial with the highest F1 on dev."""
        return max((row for row in self.rows if row.state == "done"), key=lambda row: row.score or 0.0, default=None)

    def run(self, trials: int, engine: Engine, note: Callable[[TrialRow], None] = lambda row: None) -> None:
        """Train until this number of trials has ended, with success or not. Interrupted trials do not count."""
        worse = shared(engine, partial(_Pruning, self.folder)) if self.prune else None
        remaining = trials - sum(row.ended for row in self.rows)
        for trial, result in run_tasks(engine, (self._next(worse) for _ in range(remaining))):
            self._tell(trial, result)
            self.write()
            note(self.rows[trial.number])

    def write(self) -> None:
        """Write trials.csv, trials.json and best.cfg, and delete the pipelines that are not to be kept."""
        rows, best = self.rows, self.best
        write_text(self.folder / "trials.csv", self._table(rows))
        number = None if best is None else best.number
        data = {"best": number, "plan": self.plan.described, "trials": [asdict(row) for row in rows]}
        write_text(self.folder / "trials.json", json.dumps(data, ensure_ascii=False, indent=1) + "\n")
        if best is not None:
            heading = f"# Trial {best.number} of a search: F1 {100 * (best.score or 0.0):.2f} on dev"
            config = Config().from_disk(self.trial_folder(best.number) / CONFIG, interpolate=False)
            config["training"]["logger"] = self.plan.fixed["training"]["logger"]  # the trial's has paths of its own
            write_text(self.folder / "best.cfg", f"{heading}\n\n{config.to_str(interpolate=False)}\n")
        for row in rows:
            if not self.keep_models and row != best and row.state != "running":
                shutil.rmtree(self.trial_folder(row.number) / MODEL, ignore_errors=True)

    def trial_folder(self, number: int) -> Path:
        return self.folder / "trials" / f"{number:04d}"

    def _table(self, rows: Sequence[TrialRow]) -> str:
        """Return CSV with a line for each trial, and a column for each setting."""
        text, settings = StringIO(), self.plan.space.settings
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*COLUMNS, *settings])
        for row in rows:
            values = [row.values.get(name) for name in settings]
            cells = (json.dumps(value) if isinstance(value, dict | bool) else value for value in values)
            writer.writerow([*(getattr(row, name) for name in COLUMNS), *cells])
        return text.getvalue()

    def _next(self, worse: Callable[[int, int, float], bool] | None) -> tuple[Trial, Task]:
        """Sample a trial.

        worse: Whether to prune a trial, by its number, step and score.
        """
        # A new sampler for each trial, so that samples do not depend on interruptions.
        self.study.sampler = make_sampler(
            self.plan.sampler, self.plan.seed, sum(row.again_of is None for row in self.rows)
        )
        trial = self.study.ask(dict(self.plan.space.draws))
        watch = partial(worse, trial.number) if worse else None
        values, folder = self.plan.space.values(trial.params), self.trial_folder(trial.number)
        return trial, partial(_train, self.plan, values, folder, self.gpu_id, self.code, watch)

    def _tell(self, trial: Trial, result: TrainingResult) -> None:
        from optuna.trial import TrialState

        attributes: dict[str, str | float | None] = {"seconds": round(result.seconds, 1)}
        if result.failure:
            attributes["reason"] = result.failure
        elif result.stopped:
            attributes["score"] = result.score
        for name, value in attributes.items():
            trial.set_user_attr(name, value)
        state = TrialState.FAIL if result.failure else TrialState.PRUNED if result.stopped else None
        self.study.tell(trial, None if state else result.score, state)


@contextmanager
def open_search(plan: SearchPlan, folder: Path, *, prune: bool = False, **options: Any) -> Iterator[Search]:
    """Yield the search of a directory, which is locked meanwhile. Interrupted trials are queued again.

    options: Fields of `Search`, which may differ between calls for the same search.
    """
    plan.check()
    plan.check_files()
    with locked(folder / _LOCK):
        with _wrap_storage_errors(folder / _STUDY):
            search = Search(plan, folder, _study(folder, prune=prune), prune=prune, **options)
            _check_same(search)
            _requeue_interrupted(search)
            search.write()
        yield search


@contextmanager
def _wrap_storage_errors(path: Path) -> Iterator[None]:
    """Turn errors of the database into a ConfigError that names its file."""
    try:
        yield
    except Exception as error:
        if type(error).__module__.partition(".")[0] not in ("sqlalchemy", "optuna"):  # neither needs to be installed
            raise
        reason = str(getattr(error, "orig", None) or error).removesuffix(".")
        remedy = "Move it away to start a new search, or choose another --output."
        raise ConfigError(f"{path}: cannot be read: {reason}", remedy) from error


def _storage_url(folder: Path) -> str:
    return f"sqlite:///{folder / _STUDY}"


def _study(folder: Path, *, prune: bool) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        storage=_storage_url(folder),
        study_name=_STUDY_NAME,
        direction="maximize",
        pruner=optuna.pruners.MedianPruner() if prune else optuna.pruners.NopPruner(),
        load_if_exists=True,
    )


def _check_same(search: Search) -> None:
    """Refuse a directory with a search of another plan."""
    plan, before = search.plan.described, search.study.user_attrs.get("plan")
    if before is None:
        search.study.set_user_attr("plan", plan)
    elif changed := [name for name in plan if plan[name] != before[name]]:
        remedy = "Choose another --output, or give the same arguments as before."
        raise ConfigError(f"{search.folder}: holds another search: its {' and '.join(changed)} differ", remedy)


def _requeue_interrupted(search: Search) -> None:
    """Mark the trials that were running when the search was killed, and queue them again."""
    from optuna.trial import TrialState

    for trial in search.study.get_trials(states=[TrialState.RUNNING]):
        search.study.tell(trial.number, state=TrialState.FAIL)
    trials = search.study.get_trials(deepcopy=False)
    again = {trial.user_attrs.get("again_of") for trial in trials}
    for row in search.rows:
        if row.state == "interrupted" and row.number not in again:
            search.study.enqueue_trial(trials[row.number].params, user_attrs={"again_of": row.number})


def make_sampler(name: str, seed: int, n_sampled: int) -> BaseSampler:
    """Return the sampler of the next trial."""
    from optuna.samplers import RandomSampler, TPESampler

    sampler_seed = int(np.random.SeedSequence([seed, n_sampled]).generate_state(1)[0])
    return TPESampler(seed=sampler_seed) if name == "tpe" else RandomSampler(seed=sampler_seed)


class _Pruning:
    """Optuna's median pruner for the search in a directory, called after each evaluation of a trial."""

    def __init__(self, folder: Path) -> None:
        from optuna.storages import get_storage

        self._study, self._storage = _study(folder, prune=True), get_storage(_storage_url(folder))

    def __call__(self, number: int, step: int, score: float) -> bool:
        from optuna.trial import Trial

        study_id = self._storage.get_study_id_from_name(_STUDY_NAME)
        trial = Trial(self._study, self._storage.get_trial_id_from_study_id_trial_number(study_id, number))
        trial.report(score, step)
        return trial.should_prune()


def _train(
    plan: SearchPlan,
    values: Mapping[str, Any],
    folder: Path,
    gpu_id: int,
    code: Path | None,
    watch: Watch | None,
    processes: Processes,
) -> TrainingResult:
    run = TrainingRun(folder.name, folder, plan.config(values), gpu_id=gpu_id, code=code)
    return train(run, processes, watch)
