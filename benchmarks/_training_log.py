"""A logger for `spacy train --code`: spaCy's own table on the console, and beside it the words and seconds it omits."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from spacy.language import Language
from spacy.training.loggers import console_logger
from spacy.util import registry

Info = dict[str, Any]
LogStep = Callable[[Info | None], None]
Setup = Callable[[Language, IO[str], IO[str]], tuple[LogStep, Callable[[], None]]]


def timed_logger(path: str) -> Setup:
    """Append one JSON line per evaluation to `path`."""
    setup_console = console_logger()

    def setup(
        nlp: Language, stdout: IO[str] = sys.stdout, stderr: IO[str] = sys.stderr
    ) -> tuple[LogStep, Callable[[], None]]:
        log_console, finalize = setup_console(nlp, stdout, stderr)

        def log_step(info: Info | None) -> None:
            log_console(info)
            if info is not None:
                kept = {key: info[key] for key in ("epoch", "step", "seconds", "words", "score")}
                with Path(path).open("a", encoding="utf8") as lines:
                    lines.write(json.dumps(kept) + "\n")

        return log_step, finalize

    return setup


registry.loggers("spacy_tener_benchmarks.TimedLogger.v1", func=timed_logger)
