"""`python -m spacy tener train`"""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code, parse_config_overrides, setup_gpu, show_validation_error
from spacy.util import load_config, logger

from ..workbench.files import FileError
from ._app import Messages, tener_cli

INTERRUPTED = 130  # what shells report of a command that Ctrl-C ended


@tener_cli.command("train", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def train_cli(
    context: typer.Context,
    config: Annotated[Path, typer.Argument(help="Config, or - for standard input", exists=True, allow_dash=True)],
    output: Annotated[
        Path, typer.Option("--output", "--output-path", "-o", help="Directory for model-best and model-last")
    ],
    code: Annotated[Path | None, typer.Option("--code", "-c", help="Python file with what the config needs")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-V", help="Say more")] = False,
    gpu_id: Annotated[int, typer.Option("--gpu-id", "-g", help="GPU, or -1 for the CPU")] = -1,
    restart: Annotated[bool, typer.Option("--restart", help="Begin anew, whatever is in the output directory")] = False,
) -> None:
    """
    Train a pipeline as `spacy train` does, in a way that can be interrupted.

    Takes the same config and overrides (--paths.train train.spacy), and trains the same pipeline. After each evaluation
    a checkpoint lies in the output directory. Whatever ended the command, the same command goes on from there, and
    comes to the weights that it would have come to without a break (on a CPU: bit by bit). Where config, data or
    versions are not what they were, it says so and changes nothing. The checkpoint is removed when training is over.
    """
    msg = Messages()
    overrides = parse_config_overrides(context.args)
    if verbose:
        logger.setLevel(logging.DEBUG)
    import_code(code)
    msg.info(f"Saving to output directory: {output}")
    setup_gpu(gpu_id)
    with show_validation_error(config):
        loaded = load_config(config, overrides=overrides, interpolate=False)
    # Not above: it needs torch, which would make every command of spaCy's slower.
    from ..workbench.runs.resumable import train

    try:
        with interruptible(), show_validation_error(config, hint_fill=False):
            train(loaded, output, use_gpu=gpu_id, code=code, restart=restart, stdout=sys.stdout, stderr=sys.stderr)
    except FileError as error:
        what, *more = error.reason.splitlines()
        msg.fail(what, "\n".join([*more, error.remedy]), exits=1)
    except KeyboardInterrupt:
        msg.warn("Stopped", "The same command goes on from the last evaluation.")
        raise typer.Exit(INTERRUPTED) from None


@contextmanager
def interruptible() -> Iterator[None]:
    """Inside, `kill` does what Ctrl-C does."""
    before: Any = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
