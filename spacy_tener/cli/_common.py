"""Functions shared by all commands: error handling, messages, loading and saving pipelines, and checking arguments.

Some modules are imported in the functions that use them, so that commands such as `convert` start faster.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from functools import wraps
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import spacy
import typer
from spacy.cli import _util as spacy_cli
from spacy.language import Language
from wasabi import util
from wasabi.printer import Printer

from ..errors import MissingPackageError, UserError
from ..files import replaced, writing
from . import Command, tener_cli

if TYPE_CHECKING:
    from ..annotate.answers import Record

WRONG_INPUT: Final = 1
WRONG_COMMAND_LINE: Final = 2
INTERRUPTED = 130  # Exit status of a command that the user stopped with Ctrl-C. Shells use the same number.
OVERWRITE = "Choose another path, or add --force to overwrite it."
_RESTORE = "Restore the file from a backup, or train the pipeline again."
_SHOWN = 10


class CommandLineError(UserError):
    """Error in the command line arguments. The command ends with exit status 2, instead of 1 for errors in files."""


@contextmanager
def command_line_errors() -> Iterator[None]:
    """Context manager that converts a UserError to a CommandLineError."""
    try:
        yield
    except UserError as error:
        raise CommandLineError(error.reason, error.fix, place=error.place) from error


class Messages(Printer):
    """wasabi's `Printer`, with support for line breaks in the text below a title."""

    def text(  # type: ignore[override]
        self, title: Any = "", text: Any = "", *, spaced: bool = False, exits: int | None = None, **options: Any
    ) -> None:
        """Print a title and a text. The arguments are the same as in wasabi's `Printer.text`."""
        if options.pop("show", True):
            heading = super().text(title, no_print=True, **options)
            printed = "\n".join([heading, *(util.wrap(line, indent=0) for line in str(text).splitlines())])
            print(f"\n{printed}\n" if spaced or exits is not None else printed)
        if exits is not None:
            sys.exit(exits)

    def warn_list(self, title: str, items: Sequence[object], *, most: int = _SHOWN) -> None:
        """Print a warning with the number of items, and list the first items. Do nothing if there are no items.

        title (str): Warning title.
        items (Sequence[object]): Items to list.
        most (int): Maximum number of items to list.
        """
        if items:
            lines = [str(item) for item in items[:most]]
            if len(items) > most:
                lines.append(f"... {len(items) - most} more")
            self.warn(f"{title}: {len(items):,}", "\n".join(lines))


msg = Messages()


def command(
    name: str, *, stopped: str = "", prints_result: bool = False, group: typer.Typer = tener_cli, **settings: Any
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function as a command.

    If the function raises a UserError, the command prints the error without a traceback and ends with exit status 1
    or 2.

    name (str): Command name.
    stopped (str): Message to print if the user stops the command with Ctrl-C.
    prints_result (bool): Whether the function returns a tuple: the text for standard output, and the exit status. In
        this case, all messages are printed to standard error, so that the output can be piped.
    group (typer.Typer): Group to add the command to.
    **settings (Any): Additional arguments for typer's `command`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @group.command(name, cls=Command, **settings)
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
    """Call a command's function. On an error, print the message and end with an exit status."""
    try:
        spacy_cli.import_code(arguments.get("code"))
        return function(**arguments)
    except UserError as error:
        msg.fail(f"{error.place}: {error.reason}" if error.place else error.reason, error.fix)
        sys.exit(WRONG_COMMAND_LINE if isinstance(error, CommandLineError) else WRONG_INPUT)
    except MissingPackageError as error:
        msg.fail(error.reason, error.fix, exits=WRONG_INPUT)
    except OSError as error:
        msg.fail(message_of(error), exits=WRONG_INPUT)
    except KeyboardInterrupt:
        if not stopped:
            raise
        msg.warn("Stopped", stopped, exits=INTERRUPTED)


def setup_gpu(gpu_id: int, *, silent: bool = False) -> None:
    """Activate a GPU, or the CPU if the id is -1, and print which device is used."""
    from ..nn.run import use_gpu

    use_gpu(gpu_id)
    spacy_cli.setup_gpu(gpu_id, silent=silent)


def load_pipeline(name: str) -> Language:
    """Load a pipeline from a directory or an installed package. Raises a UserError if it is missing or damaged."""
    try:
        return spacy.load(name)
    except OSError as error:
        best = Path(name, "model-best")
        fix = f"Use {best}." if best.is_dir() else "Use the directory of a pipeline, or an installed package."
        raise UserError(f"{name}: {message_of(error)}", fix) from error
    except Exception:
        # spaCy's errors don't contain the path of a damaged file. Parse the most likely files again, with functions
        # whose errors contain the path.
        if Path(name).is_dir():
            from ..evaluation.scores import read_json
            from ..training.overlays import CONFIG, read_trained_config

            read_json(Path(name, "meta.json"), _RESTORE)
            read_trained_config(Path(name, CONFIG))
            _check_strings(Path(name, "vocab", "strings.json"))
        raise


def _check_strings(path: Path) -> None:
    """Raise a UserError if `strings.json`, the string store of a pipeline's vocabulary, isn't valid JSON."""
    try:
        if path.is_file():
            json.loads(path.read_text(encoding="utf8"))
    except ValueError as error:
        raise UserError(f"{path}: {error}", _RESTORE) from error


def is_spacy_error(error: Exception) -> bool:
    """Return whether spaCy raised an error. spaCy's error messages begin with a code, such as [E050]."""
    return str(error).startswith("[E")


def message_of(error: Exception) -> str:
    """Return an error's message without spaCy's error code and without the final full stop."""
    return (str(error).partition("] ")[2] if is_spacy_error(error) else str(error)).removesuffix(".")


def check_file(path: Path | None, force: bool) -> None:
    """Raise a UserError if an output file cannot be written.

    Commands call this function before they do any work.

    path (Path | None): Path of the output file. If None, nothing is checked.
    force (bool): Whether an existing file may be overwritten.
    """
    if path is None:
        return
    with writing(path):
        exists, is_file = path.exists(), path.is_file()
    # Files are written to a temporary file that replaces `path`. This would remove a device such as /dev/null.
    if exists and not is_file:
        raise UserError(
            f"{path}: is {'a directory' if path.is_dir() else 'not a regular file'}", "Use the path of a file."
        )
    if exists and not force:
        raise UserError(f"{path}: exists already", OVERWRITE)
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if not above.is_dir() or not os.access(above, os.W_OK):
        reason = "not writable" if above.is_dir() else "not a directory"
        raise UserError(f"{path}: cannot be written, because {above} is {reason}", "Choose another path.")


def check_new(output: Path, force: bool) -> None:
    """Raise a UserError if the output directory for a pipeline exists already.

    Commands call this function before they do any work. An empty directory is valid.

    output (Path): Path of the directory.
    force (bool): Whether an existing pipeline may be overwritten. Other directories are never overwritten.
    """
    if not output.exists() or (output.is_dir() and not any(output.iterdir())):
        return
    if not (output / "meta.json").is_file():
        raise UserError(f"--output {output}: exists already, but isn't a pipeline", "Use a new directory.")
    if not force:
        raise UserError(f"--output {output}: exists already", "Use a new directory, or add --force to overwrite it.")


def write_pipeline(nlp: Language, output: Path) -> None:
    """Write a pipeline to a directory. An existing directory is replaced only when the new one is complete."""
    with replaced(output) as folder:
        nlp.to_disk(folder)


def stream_texts(inputs: Sequence[str]) -> Iterator[str]:
    """Yield the texts in files and directories. Raises a UserError if there are no texts."""
    from ..annotate.answers import TEXT_COLUMN
    from ..annotate.records import find_texts, stream_records

    return (record[TEXT_COLUMN] for record in require_records(stream_records(find_texts(inputs)[0]), inputs))


def require_records(records: Iterator[Record], inputs: Sequence[str]) -> Iterator[Record]:
    """Check that there is at least one record. Raises a UserError otherwise.

    The first record is read immediately, so that the error is raised before any other work is done.

    records (Iterator[Record]): Texts with their metadata.
    inputs (Sequence[str]): Input paths, for the error message.
    RETURNS (Iterator[Record]): All records, including the first.
    """
    first = next(records, None)
    if first is None:
        raise UserError(f"{', '.join(inputs)}: no texts were found", "Use files with one text on each line.")
    return chain([first], records)


def names(text: str) -> list[str]:
    """Split a comma-separated string into names, without duplicates."""
    return list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))


def refuse_options(ctx: typer.Context, arguments: Sequence[str], why: str, fix: str) -> None:
    """Raise a CommandLineError if the command line contains options that have no effect.

    ctx (typer.Context): Command context.
    arguments (Sequence[str]): Options without effect, as argument names of the command's function.
    why (str): Reason why the options have no effect.
    fix (str): How to fix the command line. "{options}" is replaced with the options.
    """
    used = ", ".join(options_in_use(ctx, arguments))
    if used:
        raise CommandLineError(f"{used}: {why}", fix.replace("{options}", used))


def options_in_use(ctx: typer.Context, arguments: Collection[str]) -> list[str]:
    """Check which options the user specified on the command line.

    ctx (typer.Context): Command context.
    arguments (Collection[str]): Options to check, as argument names of the command's function.
    RETURNS (list[str]): The specified options, such as `--limit`.
    """
    return [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name in arguments
        and (source := ctx.get_parameter_source(parameter.name))
        and source.name == "COMMANDLINE"
    ]
