"""The log of a training as JSON lines, which another process reads while it grows."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import srsly
from spacy.language import Language
from spacy.training.loggers import console_logger_v3

Log = Callable[[dict[str, Any] | None], None]


def json_lines_logger(output_file: str) -> Callable[[Language, IO[str], IO[str]], tuple[Log, Callable[[], None]]]:
    """Make a logger that prints spaCy's table, and appends a line to a file at each evaluation.

    spaCy's own logger writes such a file some thirty lines at a time. This one also ends the training with the process
    that began it: a new process then has the directory for itself.

    Registered as `spacy_tener.JsonLinesLogger.v1`, for `[training.logger]`.

    output_file (str): The file: steps, losses and scores, as those of `spacy.ConsoleLogger.v3`.
    """

    def set_up(nlp: Language, stdout: IO[str], stderr: IO[str]) -> tuple[Log, Callable[[], None]]:
        print_row, finish = console_logger_v3()(nlp, stdout, stderr)
        # Before the first step, so that a wrong path costs no training.
        Path(output_file).parent.mkdir(parents=True, exist_ok=True)
        parent = os.getppid()
        weights = nlp.config["training"]["score_weights"]
        columns = [name for name, weight in weights.items() if weight is not None]

        def log(info: dict[str, Any] | None) -> None:
            if os.getppid() != parent:
                raise SystemExit("The process that began this training has ended.")
            print_row(info)
            if info is not None:
                scores = {name: 100 * float(info["other_scores"].get(name, 0.0)) for name in columns}
                losses = {name: float(loss) for name, loss in info["losses"].items()}
                row = {"epoch": info["epoch"], "step": info["step"], "losses": losses, "scores": scores}
                row["score"] = float(info["score"])
                srsly.write_jsonl(output_file, [row], append=True, append_new_line=False)

        return log, finish

    return set_up
