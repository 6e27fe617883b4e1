"""Random search: trainings with settings drawn from a space, of which dev chooses the best. Test is never read.

A space is a Python file with a function `settings`, which asks an optuna trial for values and returns settings of the
config by their dotted names. Those of the papers are in `spaces`. optuna's storage, a file or a database, holds the
trials: any number of processes may share it, and each may be killed at any time. A search is a directory:

    DIR/study.db                                  the storage, which optuna's own tools read
    DIR/0007/config.cfg, training.jsonl, output.log   a trial: config, scores, and output of `spacy train`
    DIR/0007/model-best/, DIR/best.cfg            the best trial's pipeline and config
"""

from __future__ import annotations

import runpy
import shutil
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import srsly
from thinc.api import Config

from spacy_tener.errors import RemedyError
from spacy_tener.files import digest, write_text
from spacy_tener.training.config_files import ConfigError
from spacy_tener.training.overlays import with_settings
from spacy_tener.training.runs import METRICS_DEV, MODEL, SCORE, Processes, TrainingRun, train

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

Space = Callable[["Trial"], Mapping[str, Any]]

SPACES = Path(__file__).with_name("spaces")
STORAGE, BEST = "study.db", "best.cfg"
REASON, SETTINGS, PLAN = "reason", "settings", "plan"
"""What is noted with a trial: why its training failed, and its settings; with a study: what is searched."""
HEARTBEAT = 20
"""Seconds from one sign of life of a running trial to the next."""
_STUDY = "search"
_MAKING = 2  # seconds for the tables of a new database


class TrainingFailedError(RemedyError):
    """A training that failed. The search goes on."""


@dataclass(frozen=True)
class Search:
    """What is searched, where, and by which seed.

    run: The training without any setting of the space; its folder is that of the search.
    space: A Python file.
    storage: The address of a database as optuna has it; None for a file in the folder.
    """

    run: TrainingRun
    space: Path
    seed: int = 0
    storage: str | None = None

    def read_space(self) -> Space:
        """Return the function of the space."""
        if not self.space.is_file():
            known = ", ".join(sorted(path.stem for path in SPACES.glob("*.py")))
            raise ConfigError(f"There is no search space {self.space}", f"Name a Python file, or one of: {known}.")
        found: Space | None = runpy.run_path(str(self.space)).get("settings")
        if found is None:
            raise ConfigError(f"{self.space}: has no function 'settings'", "Write it as in research/spaces/tener.py.")
        return found

    def study(self) -> Study:
        """Open the study, new or begun. Refuses one of another config, space or seed."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            study = self._open()
        except SQLAlchemyError:  # another process makes the tables at this moment
            time.sleep(_MAKING)
            study = self._open()
        plan = {
            "config": self.run.config.to_str(interpolate=False),
            "space": digest(self.space),
            "seed": self.seed,
        }
        before = study.user_attrs.get(PLAN)
        if before is None:
            study.set_user_attr(PLAN, plan)
        elif changed := [name for name in plan if plan[name] != before[name]]:
            remedy = "Name another directory, or give the same arguments as before."
            raise ConfigError(f"{self.run.folder}: holds another search: its {' and '.join(changed)} differ", remedy)
        return study

    def _open(self) -> Study:
        import optuna
        from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.run.folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # A trial without a sign of life is drawn again by whoever begins the next one.
            storage = RDBStorage(
                self.storage or f"sqlite:///{self.run.folder / STORAGE}",
                heartbeat_interval=HEARTBEAT,
                grace_period=3 * HEARTBEAT,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
            )
        return optuna.create_study(storage=storage, study_name=_STUDY, direction="maximize", load_if_exists=True)

    def carry_on(self, trials: int, processes: Processes, note: Callable[[FrozenTrial], None]) -> Study:
        """Train until so many trials have ended, those of all processes together. Each process ends what it has begun.

        note: Called with each trial of this process that has ended.
        """
        settings, study = self.read_space(), self.study()

        def ended(study: Study, trial: FrozenTrial) -> None:
            self._keep_best(study)
            note(trial)

        while count_ended(study) < trials:
            study.optimize(
                lambda trial: self._score(trial, settings, processes),
                n_trials=1,
                catch=TrainingFailedError,
                callbacks=[ended],
            )
        return study

    def folder(self, number: int) -> Path:
        """Return the directory of a trial."""
        return self.run.folder / f"{number:04d}"

    def _config(self, settings: Mapping[str, Any]) -> Config:
        lines = [f"{name}={srsly.json_dumps(value)}" for name, value in settings.items()]
        return with_settings(self.run.config, lines)

    def _score(self, trial: Trial, space: Space, processes: Processes) -> float:
        """Draw settings and train. Returns F1 on dev, 0 to 1."""
        from optuna.samplers import RandomSampler

        # By the number of the trial, so that processes that share a search do not draw the same.
        seed = int(np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0])
        trial.study.sampler = RandomSampler(seed=seed)
        settings = space(trial)
        trial.set_user_attr(SETTINGS, dict(settings))
        run = replace(self.run, name=str(trial.number), folder=self.folder(trial.number), config=self._config(settings))
        try:
            failure = train(run, processes)
        except BaseException:  # Ctrl-C
            trial.study.enqueue_trial(trial.params)
            raise
        if failure:
            trial.set_user_attr(REASON, failure)
            raise TrainingFailedError(failure, f"See {run.folder}.")
        score: float = srsly.read_json(run.folder / METRICS_DEV)[SCORE]
        return score

    def _keep_best(self, study: Study) -> None:
        """Write the best trial's config, and delete the pipelines of the other finished ones."""
        best = find_best(study)
        if best is None:
            return
        heading = f"# Trial {best.number} of a search: F1 {100 * best.values[0]:.2f} on dev"
        config = self._config(best.user_attrs[SETTINGS]).to_str(interpolate=False)
        write_text(self.run.folder / BEST, f"{heading}\n\n{config}\n")
        for trial in study.get_trials(deepcopy=False):
            if trial.state.is_finished() and trial.number != best.number:
                shutil.rmtree(self.folder(trial.number) / MODEL, ignore_errors=True)


def find_space(name: str) -> Path:
    """Return the file of a space, by its path, or by its name in `spaces`."""
    return Path(name) if name.endswith(".py") else SPACES / f"{name}.py"


def count_ended(study: Study) -> int:
    """Return the number of trials that were trained to their end, or failed. Interrupted ones do not count."""
    trials = study.get_trials(deepcopy=False)
    return sum(trial.values is not None or REASON in trial.user_attrs for trial in trials)


def table(study: Study) -> tuple[list[str], list[list[str]]]:
    """Return a header and a row for each trial: its state, F1 on dev in percent, seconds, and what was drawn."""
    trials = study.get_trials(deepcopy=False)
    drawn = list(dict.fromkeys(name for trial in trials for name in trial.params))
    header = ["trial", "state", "F1 on dev", "seconds", *(name.replace("_", " ") for name in drawn)]
    return header, [
        [
            str(trial.number),
            _state(trial),
            _score(trial),
            _seconds(trial),
            *(_shown(trial.params, name) for name in drawn),
        ]
        for trial in trials
    ]


def _state(trial: FrozenTrial) -> str:
    if trial.state.name == "FAIL":
        return "failed" if REASON in trial.user_attrs else "interrupted"
    return {"COMPLETE": "done"}.get(trial.state.name, trial.state.name.lower())


def _score(trial: FrozenTrial) -> str:
    return "" if trial.values is None else f"{100 * trial.values[0]:.2f}"


def _seconds(trial: FrozenTrial) -> str:
    return "" if trial.values is None or trial.duration is None else f"{trial.duration.total_seconds():.0f}"


def _shown(params: Mapping[str, Any], name: str) -> str:
    return f"{params[name]:.4g}" if name in params else ""


def find_best(study: Study) -> FrozenTrial | None:
    """Return the trial with the highest F1 on dev."""
    scored = [trial for trial in study.get_trials(deepcopy=False) if trial.values is not None]
    return max(scored, key=lambda trial: trial.values[0], default=None)
