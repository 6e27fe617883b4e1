"""spaCy's training, which can be interrupted at any moment and goes on where its last evaluation was.

`spacy.training.loop.train` once more, of the same parts and with the same result, but for three things: at each
evaluation everything that the rest of the training depends on is written to one file (see `checkpoint`); a training
that finds such a file runs spaCy's loop again up to there without computing anything (see `replay`) and takes up what
is in the file; and pipelines are put into place whole. A training that an error ended leaves the pipelines of its last
evaluation.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from pickle import UnpicklingError
from typing import IO, Any

from spacy.language import Language
from spacy.schemas import ConfigSchemaTraining
from spacy.training.initialize import init_nlp
from spacy.training.loop import (
    DIR_MODEL_BEST,
    DIR_MODEL_LAST,
    clean_output_dir,
    create_before_to_disk_callback,
    create_evaluation_callback,
    create_train_batches,
    train_while_improving,
    update_meta,
)
from spacy.util import registry, resolve_dot_names
from thinc.api import Config, fix_random_seed, set_gpu_allocator
from wasabi.printer import Printer

from ..files import FileError, locked
from .checkpoint import broken, read_checkpoint, write_checkpoint
from .fingerprint import fingerprint
from .output_folder import CHECKPOINT, LOCK, Record, Standing, forget, standing, tidy, write_record
from .randomness import full_state, reseed_cupy, set_full_state
from .replay import Replay
from .weights import Weights

ANEW = "To begin anew, give --restart."
_SHOWN = 8


def train(
    config: Config,
    folder: Path,
    *,
    use_gpu: int = -1,
    code: Path | None = None,
    restart: bool = False,
    stdout: IO[str] = sys.stdout,
    stderr: IO[str] = sys.stderr,
) -> bool:
    """Train a pipeline as `spacy train` does, or go on with a training that was stopped. Needs the GPU to be set up.

    config: With its variables and overrides, as for `init_nlp`.
    folder: For model-best and model-last, and while it trains, the checkpoint.
    code: The file of --code, already imported; the training depends on what is in it.
    restart: Begin anew, whatever there is.
    Returns whether there was anything to do: False for a training that is finished.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / LOCK):
        now = fingerprint(config, code=code, use_gpu=use_gpu)
        found = Standing("new") if restart else standing(folder, now)
        if found.changes:
            raise FileError(_changed(folder, found), ANEW)
        if found.record and found.state == "finished":
            stdout.write(Printer(no_print=True).good(_finished(folder, found.record)) + "\n")
            return False
        past = read_checkpoint(folder / CHECKPOINT) if found.state == "stopped" else None
        nlp = _initialized(config, use_gpu, stdout)
        record = found.record if found.record and past else _begun(folder, Record(now), config)
        finished = Training(nlp, folder, past, log=record.log, use_gpu=use_gpu).run(stdout, stderr)
        write_record(folder, replace(record, finished=finished))
        tidy(folder)
    return True


class Training:
    """One training of an initialized pipeline.

    past: The checkpoint to go on from, if it does not begin.
    log: The file that its logger writes, if there was none before it began.
    """

    def __init__(
        self,
        nlp: Language,
        folder: Path,
        past: dict[str, Any] | None = None,
        *,
        log: str | None = None,
        use_gpu: int = -1,
    ) -> None:
        config = nlp.config.interpolate()
        if config["training"]["seed"] is not None:
            fix_random_seed(config["training"]["seed"])
        if use_gpu >= 0 and config["training"]["gpu_allocator"]:
            set_gpu_allocator(config["training"]["gpu_allocator"])
        self._nlp = nlp
        self._folder = folder
        self._past = past
        self._log = log
        self._settings = registry.resolve(config["training"], schema=ConfigSchemaTraining)
        self._corpora = resolve_dot_names(config, [self._settings["train_corpus"], self._settings["dev_corpus"]])
        self._optimizer = self._settings["optimizer"]
        self._frozen = self._settings["frozen_components"]
        self._before_to_disk = create_before_to_disk_callback(self._settings["before_to_disk"])
        self._weights = Weights(nlp, self._frozen)
        self._structure = self._weights.structure()
        self._replay = Replay(nlp, past and past["replay"])

    def run(self, stdout: IO[str], stderr: IO[str]) -> dict[str, Any]:
        """Train to the end. Returns what there is to say about it."""
        if self._past is None:
            clean_output_dir(self._folder)
        self._introduce(stdout)
        steps = self._steps()
        if self._past is not None:
            self._catch_up(steps, self._past)
        log_step, finalize_logger = self._open_log(stdout, stderr)
        try:
            last = self._learn(steps, log_step)
        finally:
            finalize_logger()
        self._save_last(durable=True)
        stdout.write(
            Printer(no_print=True).good("Saved pipeline to output directory", self._folder / DIR_MODEL_LAST) + "\n"
        )
        score, negative_step = max((each["score"], -each["step"]) for each in self._replay.evaluations)
        return {"step": last, "best_score": score, "best_step": -negative_step}

    def _introduce(self, stdout: IO[str]) -> None:
        """What `spacy train` says first."""
        msg = Printer(no_print=True)
        annotating = self._settings["annotating_components"]
        stdout.write(msg.info(f"Pipeline: {self._nlp.pipe_names}") + "\n")
        if self._frozen:
            stdout.write(msg.info(f"Frozen components: {self._frozen}") + "\n")
        if annotating:
            stdout.write(msg.info(f"Set annotations on update for: {annotating}") + "\n")
        stdout.write(msg.info(f"Initial learn rate: {self._optimizer.learn_rate}") + "\n")
        if self._past is not None:
            stdout.write(msg.info(f"Continuing after step {self._past['step']}") + "\n")

    def _open_log(self, stdout: IO[str], stderr: IO[str]) -> tuple[Any, Any]:
        """What the config's logger logs by, and what ends it. It has been told of everything that there was before."""
        if self._past is not None and self._log:
            # A logger would refuse to go on with a file that is there.
            Path(self._log).unlink(missing_ok=True)
        section = {"logger": self._nlp.config.interpolate()["training"]["logger"]}
        with self._nlp.select_pipes(disable=self._frozen):
            log_step, finalize = registry.resolve(section)["logger"](self._nlp, stdout, stderr)
        for info in self._replay.infos():
            log_step(info)
        return log_step, finalize

    def _learn(self, steps: Iterator[Any], log_step: Any) -> int:
        """Go through the steps that are left. Returns the number of the last."""
        step, seconds = 0, 0
        if self._past is not None:
            step, seconds = self._past["step"], self._past["seconds"]
            set_full_state(self._past["random"])
        self._replay.live = True
        for _, info, is_best in steps:
            step = info["step"]
            info["seconds"] += seconds
            if is_best is not None:
                self._keep(info, is_best)
            log_step(info if is_best is not None else None)
        return step

    def _steps(self) -> Iterator[tuple[Any, dict[str, Any], bool | None]]:
        settings, replay = self._settings, self._replay
        train_corpus, dev_corpus = self._corpora
        batches = create_train_batches(self._nlp, train_corpus, settings["batcher"], settings["max_epochs"])
        evaluate = create_evaluation_callback(self._nlp, dev_corpus, settings["score_weights"])
        steps: Iterator[Any] = train_while_improving(
            replay,  # type: ignore[arg-type]
            self._optimizer,
            replay.batches(batches),
            replay.evaluation(evaluate),
            dropout=settings["dropout"],
            accumulate_gradient=settings["accumulate_gradient"],
            patience=settings["patience"],
            max_steps=settings["max_steps"],
            eval_frequency=settings["eval_frequency"],
            exclude=self._frozen,
            annotating_components=settings["annotating_components"],
            before_update=replay.callback(settings["before_update"]),
        )
        return steps

    def _keep(self, info: dict[str, Any], is_best: bool) -> None:
        """What is to be there after an evaluation. The checkpoint goes before the best pipeline, which a training that
        goes on from this checkpoint can write once more."""
        with self._nlp.select_pipes(disable=self._frozen):
            update_meta(self._settings, self._nlp, info)
        self._save_last()
        info["output_path"] = str(self._folder / DIR_MODEL_LAST)
        self._replay.note(info)
        reseed_cupy(info["step"])
        write_checkpoint(self._folder / CHECKPOINT, self._state(info, is_best))
        if is_best:
            self._save_best()

    def _state(self, info: dict[str, Any], is_best: bool) -> dict[str, Any]:
        return {
            "step": info["step"],
            "seconds": info["seconds"],
            "is_best": is_best,
            "performance": self._nlp.meta["performance"],
            "structure": self._structure,
            "replay": self._replay.past(),
            "weights": self._weights.state(),
            "optimizer": self._weights.optimizer_state(self._optimizer),
            "random": full_state(),
        }

    def _catch_up(self, steps: Iterator[Any], past: dict[str, Any]) -> None:
        """Bring the loop and the pipeline to where a checkpoint was written."""
        self._check_structure(past["structure"])
        if not any(info["step"] == past["step"] for _, info, _ in steps) or self._replay.differs(past["replay"]):
            reason = f"{self._settings['train_corpus']} gives other examples than when this training began"
            raise FileError(reason, ANEW)
        self._take_up(past)

    def _take_up(self, past: dict[str, Any]) -> None:
        try:
            self._weights.load(past["weights"])
            self._weights.load_optimizer(self._optimizer, past["optimizer"])
        except (ValueError, KeyError, RuntimeError, UnpicklingError) as error:
            raise broken(self._folder / CHECKPOINT, error) from error
        self._nlp.meta["performance"] = past["performance"]
        # It may have been stopped while it wrote these.
        self._save_last()
        if past["is_best"]:
            self._save_best()
        del past["weights"], past["optimizer"]  # as large as four pipelines

    def _check_structure(self, before: dict[str, str]) -> None:
        changed = {place for place in {*before, *self._structure} if before.get(place) != self._structure.get(place)}
        if changed:
            names = ", ".join(sorted({place.partition("/")[0] for place in changed}))
            reason = (
                f"Initialized again, the pipeline has other labels or tables than when this training began: {names}"
            )
            raise FileError(reason, ANEW)

    def _save_last(self, *, durable: bool = False) -> None:
        with self._nlp.use_params(self._optimizer.averages):
            write = self._before_to_disk(self._nlp).to_disk
            replace_folder(self._folder / DIR_MODEL_LAST, write, durable=durable)

    def _save_best(self) -> None:
        replace_folder(self._folder / DIR_MODEL_BEST, partial(shutil.copytree, self._folder / DIR_MODEL_LAST))


def _initialized(config: Config, use_gpu: int, stdout: IO[str]) -> Language:
    msg = Printer(no_print=True)
    stdout.write(msg.divider("Initializing pipeline") + "\n")
    nlp = init_nlp(config, use_gpu=use_gpu)
    stdout.write(msg.good("Initialized pipeline") + "\n")
    stdout.write(msg.divider("Training pipeline") + "\n")
    return nlp


def _begun(folder: Path, record: Record, config: Config) -> Record:
    """The record of a training that begins, in the place of whatever there was."""
    forget(folder)
    path = config.interpolate().get("training", {}).get("logger", {}).get("output_file")
    # A log that is still there is somebody else's.
    record = replace(record, log=str(path) if path and not Path(path).exists() else None)
    write_record(folder, record)
    return record


def _changed(folder: Path, found: Standing) -> str:
    more = len(found.changes) - _SHOWN
    shown = [*found.changes[:_SHOWN], *([f"... {more} more"] if more > 0 else [])]
    return f"{folder}: the training there is {found.state}, and was not the same:\n" + "\n".join(shown)


def _finished(folder: Path, record: Record) -> str:
    done = record.finished or {}
    best = f"best score {done['best_score']:.4f} at step {done['best_step']}"
    return f"{folder}: this training is finished, after step {done['step']}; {best}. {ANEW}"


def replace_folder(path: Path, write: Callable[[Path], Any], *, durable: bool = True) -> None:
    """Write a directory beside its place and put it there. Its predecessor is gone for a moment only, and whole.

    durable: wait until it is on the disk. Without it the directory may be in parts after a failure of the machine.
    """
    beside, before = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    for left in (beside, before):
        shutil.rmtree(left, ignore_errors=True)
    write(beside)
    for file in filter(Path.is_file, beside.rglob("*") if durable else ()):
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
    if path.exists():
        path.rename(before)
    beside.rename(path)
    shutil.rmtree(before, ignore_errors=True)
