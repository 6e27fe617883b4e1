"""Errors and messages of the commands, and the checks that several of them make."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import Any, Final

import spacy
import typer
from spacy.cli import _util as spacy_cli
from spacy.language import Language
from wasabi import util
from wasabi.printer import Printer

from ..annotate.answers import TEXT_COLUMN, Record
from ..annotate.records import find_texts, stream_records
from ..errors import MissingPackageError, RemedyError
from ..evaluation.scores import read_json
from ..files import replaced
from ..nn.run import use_gpu
from ..training.overlays import CONFIG, read_trained_config
from . import tener_cli

WRONG_INPUT: Final = 1
WRONG_COMMAND_LINE: Final = 2
INTERRUPTED = 130  # the exit status that shells give a command ended by Ctrl-C
OVERWRITE = "Choose another name, or overwrite it by --force."
_RESTORE = "Restore it from a copy, or train the pipeline again."
_SHOWN = 10


class CommandLineError(RemedyError):
    """Error in a command line, whatever the files hold that it names."""


@contextmanager
def of_command_line() -> Iterator[None]:
    """Take errors of the settings that a command line gives as errors of the command line."""
    try:
        yield
    except RemedyError as error:
        raise CommandLineError(error.reason, error.remedy, place=error.place) from error


class Messages(Printer):
    """wasabi's Printer, but a list below a title keeps its lines, which wasabi wraps into one paragraph."""

    def text(  # type: ignore[override]
        self, title: Any = "", text: Any = "", *, spaced: bool = False, exits: int | None = None, **options: Any
    ) -> None:
        if options.pop("show", True):
            heading = super().text(title, no_print=True, **options)
            printed = "\n".join([heading, *(util.wrap(line, indent=0) for line in str(text).splitlines())])
            print(f"\n{printed}\n" if spaced or exits is not None else printed)
        if exits is not None:
            sys.exit(exits)

    def warn_list(self, title: str, items: Sequence[object], *, most: int = _SHOWN) -> None:
        """Warn of a list, with its length after the title. An empty list prints nothing."""
        if items:
            lines = [str(item) for item in items[:most]]
            if len(items) > most:
                lines.append(f"... {len(items) - most} more")
            self.warn(f"{title}: {len(items):,}", "\n".join(lines))


msg = Messages()


def command(
    name: str, *, stopped: str = "", prints_result: bool = False, group: typer.Typer = tener_cli, **settings: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that adds a command to a group. A RemedyError ends the command with its reason and remedy.

    stopped (str): The message after Ctrl-C.
    prints_result (bool): The function returns a text for standard output and an exit status, and its messages go to
        standard error.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @group.command(name, **settings)
        @wraps(function)
        def run(**arguments: Any) -> None:
            with redirect_stdout(sys.stderr) if prints_result else nullcontext():
                result = _run(function, arguments, stopped)
            if prints_result:
                text, status = result
                typer.echo(text, nl=False)
                sys.exit(status)

        return function

    return decorate


def _run(function: Callable[..., Any], arguments: Mapping[str, Any], stopped: str) -> Any:
    try:
        spacy_cli.import_code(arguments.get("code"))
        return function(**arguments)
    except RemedyError as error:
        msg.fail(f"{error.place}: {error.reason}" if error.place else error.reason, error.remedy)
        sys.exit(WRONG_COMMAND_LINE if isinstance(error, CommandLineError) else WRONG_INPUT)
    except MissingPackageError as error:
        msg.fail(error.reason, error.remedy, exits=WRONG_INPUT)
    except OSError as error:
        msg.fail(message_of(error), exits=WRONG_INPUT)
    except KeyboardInterrupt:
        if not stopped:
            raise
        msg.warn("Stopped", stopped, exits=INTERRUPTED)


def setup_gpu(gpu_id: int, *, silent: bool = False) -> None:
    """Use a GPU, or with -1 the CPU, and print which."""
    use_gpu(gpu_id)
    spacy_cli.setup_gpu(gpu_id, silent=silent)


def load_pipeline(name: str) -> Language:
    """Load a pipeline by its package's name or its directory."""
    try:
        return spacy.load(name)
    except OSError as error:
        best = Path(name, "model-best")
        remedy = f"It is in {best}." if best.is_dir() else "Name a pipeline that is installed, or its directory."
        raise RemedyError(f"{name}: {message_of(error)}", remedy) from error
    except Exception:
        if Path(name).is_dir():
            read_json(Path(name, "meta.json"), _RESTORE)
            read_trained_config(Path(name, CONFIG))
            _check_strings(Path(name, "vocab", "strings.json"))
        raise


def _check_strings(path: Path) -> None:
    """Refuse a pipeline's strings that are damaged: spaCy's error does not name the file."""
    try:
        if path.is_file():
            json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        raise RemedyError(f"{path}: {error}", _RESTORE) from error


def is_spacy_error(error: Exception) -> bool:
    """Return whether an error is one of spaCy's, which have numbers."""
    return str(error).startswith("[E")


def message_of(error: Exception) -> str:
    """Return the message of an error, without the number that spaCy's errors have."""
    return (str(error).partition("] ")[2] if is_spacy_error(error) else str(error)).removesuffix(".")


def check_file(path: Path | None, force: bool) -> None:
    """Refuse a file that exists, without --force, or cannot be written, before anything is computed. None passes."""
    if path is None:
        return
    if path.exists() and not path.is_file():  # a device would give its place to a file
        raise RemedyError(f"{path}: is {'a directory' if path.is_dir() else 'no regular file'}", "Name a file.")
    if path.exists() and not force:
        raise RemedyError(f"{path}: exists already", OVERWRITE)
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        reason = "not writable" if above.is_dir() else "not a directory"
        raise RemedyError(f"{path}: cannot be written, as {above} is {reason}", "Choose another place.")


def check_new(output: Path, force: bool) -> None:
    """Refuse an existing output, before anything is computed. With `force` a pipeline may be there."""
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / "meta.json").is_file():
        raise RemedyError(f"--output {output}: exists already, and is no pipeline", "Name a new directory.")
    if not force:
        raise RemedyError(f"--output {output}: exists already", "Name a new directory, or overwrite it by --force.")


def write_pipeline(nlp: Language, output: Path) -> None:
    """Write a pipeline to a directory, atomically."""
    with replaced(output) as folder:
        nlp.to_disk(folder)


def stream_texts(inputs: Sequence[str]) -> Iterator[str]:
    """Return the texts of files and directories, of which there must be one."""
    return (record[TEXT_COLUMN] for record in not_empty(stream_records(find_texts(inputs)[0]), inputs))


def not_empty(records: Iterator[Record], inputs: Sequence[str]) -> Iterator[Record]:
    """Return the records of inputs; raise if there is none. The first one is read at once."""
    first = next(records, None)
    if first is None:
        raise RemedyError(f"{', '.join(inputs)}: there is no text", "Give files with a text on each line.")
    return chain([first], records)


def names(text: str) -> list[str]:
    """Return the names between commas, each once."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def refuse_options(ctx: typer.Context, arguments: Sequence[str], why: str, remedy: str) -> None:
    """Refuse those of some arguments of a command that are on its command line, where they would do nothing."""
    options = options_in_use(ctx, arguments)
    if options:
        raise CommandLineError(f"{', '.join(options)}: {why}", remedy)


def options_in_use(ctx: typer.Context, arguments: Collection[str]) -> list[str]:
    """Return those of some arguments of a command that are on its command line, as options."""
    return [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name in arguments
        and (source := ctx.get_parameter_source(parameter.name))
        and source.name == "COMMANDLINE"
    ]
