"""Random search for settings: train with random settings, and select the best pipeline on the development set.

`python -m research search` uses this file. A search space is a Python file with a function `settings(trial)`, which
samples values with an optuna trial and returns settings of the config by their dotted names. `spaces` contains the
search spaces of the papers. Trials are stored by optuna in a file or a database. Any number of processes can share it,
and all of them can be killed at any time. The directory of a search contains:

    DIR/study.db                                      optuna's storage, for example for optuna-dashboard
    DIR/0007/config.cfg, training.jsonl, output.log   a trial: config, scores, and the output of `spacy train`
    DIR/0007/model-best/, DIR/best.cfg                pipeline and config of the best trial
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

from spacy_tener.errors import UserError
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
# Attributes that are stored with a trial (the error message and the settings) and with the study (config, space and
# seed).
REASON, SETTINGS, PLAN = "reason", "settings", "plan"
# Seconds between heartbeats. optuna uses them to detect killed trials.
HEARTBEAT = 20
_STUDY = "search"
_MAKING = 2  # seconds to wait while another process creates the tables of a new database


class TrainingFailedError(UserError):
    """A failed training run. The search continues with the next trial."""


@dataclass(frozen=True)
class Search:
    """A random search.

    run: The training run without settings of the search space. Its folder is the directory of the search.
    space: Python file with the search space.
    seed: Seed for sampling settings.
    storage: URL of a database for optuna. By default, a file in the directory of the search.
    """

    run: TrainingRun
    space: Path
    seed: int = 0
    storage: str | None = None

    def read_space(self) -> Space:
        """Return the function `settings` of the search space."""
        if not self.space.is_file():
            known = ", ".join(sorted(path.stem for path in SPACES.glob("*.py")))
            raise ConfigError(f"There is no search space {self.space}", f"Name a Python file, or one of: {known}.")
        found: Space | None = runpy.run_path(str(self.space)).get("settings")
        if found is None:
            raise ConfigError(f"{self.space}: has no function 'settings'", "Write it as in research/spaces/tener.py.")
        return found

    def study(self) -> Study:
        """Open the study, or create it. Raises an error if it was created with another config, space or seed."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            study = self._open()
        except SQLAlchemyError:  # another process is creating the tables at this moment
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
            fix = "Name another directory, or give the same arguments as before."
            raise ConfigError(f"{self.run.folder}: holds another search: its {' and '.join(changed)} differ", fix)
        return study

    def _open(self) -> Study:
        import optuna
        from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.run.folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            # A trial without heartbeats is enqueued again by the next process that starts a trial.
            storage = RDBStorage(
                self.storage or f"sqlite:///{self.run.folder / STORAGE}",
                heartbeat_interval=HEARTBEAT,
                grace_period=3 * HEARTBEAT,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
            )
        return optuna.create_study(storage=storage, study_name=_STUDY, direction="maximize", load_if_exists=True)

    def carry_on(self, trials: int, processes: Processes, note: Callable[[FrozenTrial], None]) -> Study:
        """Train until this number of trials has ended, counting the trials of all processes. Trials in progress are
        completed.

        note: Callback for each trial of this process that has ended.
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
        """Sample settings and train. Returns F1 on the development set, as a fraction."""
        from optuna.samplers import RandomSampler

        # The seed depends on the number of the trial, so that parallel processes sample different settings.
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
        """Write the config of the best trial, and delete the pipelines of all other finished trials."""
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
    """Return the file of a search space, given its path or its name in `spaces`."""
    return Path(name) if name.endswith(".py") else SPACES / f"{name}.py"


def count_ended(study: Study) -> int:
    """Return the number of completed and failed trials, without interrupted ones."""
    trials = study.get_trials(deepcopy=False)
    return sum(trial.values is not None or REASON in trial.user_attrs for trial in trials)


def table(study: Study) -> tuple[list[str], list[list[str]]]:
    """Return a header, and a row for each trial: state, F1 on the development set in percent, seconds, and sampled
    values."""
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
    """Return the trial with the highest F1 on the development set."""
    scored = [trial for trial in study.get_trials(deepcopy=False) if trial.values is not None]
    return max(scored, key=lambda trial: trial.values[0], default=None)
