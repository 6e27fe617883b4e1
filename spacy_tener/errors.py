"""Exceptions that tell users how to fix the problem, and helpers for their messages.

    raise RemedyError("Unknown tag scheme 'BOI'", "Use one of: BIOES, BMES.")

Commands print the reason and the remedy of a `RemedyError` without a traceback, and end with exit status 1 or 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class RemedyError(ValueError):
    """An error with its reason and a remedy: what the user can do about it.

    reason (str): What is wrong, without a full stop.
    remedy (str): How to fix it, in one or more full sentences.
    place (str): File and line of the error, if it is in a file. Precedes the reason in the message.
    """

    def __init__(self, reason: str, remedy: str, *, place: str = "") -> None:
        self.reason = reason
        self.remedy = remedy
        self.place = place
        super().__init__(f"{place}: {reason}. {remedy}" if place else f"{reason}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled between processes. By default, `__init__` would be called with the message alone.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(error_type: type[RemedyError], args: tuple[Any, ...], state: dict[str, Any]) -> RemedyError:
    """Create an unpickled exception without calling `__init__`, whose arguments differ between subclasses."""
    error = error_type.__new__(error_type, *args)
    error.__dict__.update(state)
    return error


class InputError(RemedyError):
    """An error in an input file or its path.

    source (str): Path of the file, or the name of another input such as standard input.
    line (int | None): Number of the line, from 1.
    """

    def __init__(self, source: str, reason: str, remedy: str, *, line: int | None = None) -> None:
        self.source = source
        self.line = line
        super().__init__(reason, remedy, place=source if line is None else f"{source}:{line}")


class MissingPackageError(ImportError):
    """An error about a package that isn't installed.

    reason (str): Feature that requires the package.
    remedy (str): Command that installs it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.remedy)


def check_package(name: str, needed: str, remedy: str = "") -> Path:
    """Return the directory of an installed package. Raises a MissingPackageError if it isn't installed.

    name (str): Import name of the package.
    needed (str): Beginning of the message, which is followed by "the package NAME": the feature that requires the
        package.
    remedy (str): How to fix it. By default, the command that installs the package.
    """
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise MissingPackageError(f"{needed} the package {name}, which is not installed", remedy or install(name))
    return Path(spec.origin).parent


def install(*packages: str) -> str:
    """Return the command that installs packages, for messages.

    The command contains the names of the packages instead of an extra of this package, because this package isn't on an
    index yet, where anybody could register its name.
    """
    command = f"pip install {' '.join(packages)}"
    if "torch" in packages:  # On Linux, pip installs the CUDA build by default, which needs 5 GB.
        command += " (without a GPU, first torch's build for the CPU: https://pytorch.org/get-started/locally/)"
    return command


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun in the singular or plural, such as "1 text" or "2 entities"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Raise a RemedyError if a value isn't one of the choices.

    what (str): Name of the option, such as `metric`.
    """
    choices = list(choices)
    if value not in choices:
        remedy = f"Use one of: {', '.join(choices)}." if choices else "There are no valid values."
        raise RemedyError(f"Unknown {what} '{value}'", remedy)


_OTHER_CONFIG = (
    "The weights belong to another config, or a file is damaged. Load the weights with the config.cfg that was saved "
    "with them. If it is the right config, restore the files from a backup."
)


@contextmanager
def wrap_load_errors(name: str, source: str) -> Iterator[None]:
    """Add a remedy to errors while a component is loaded, depending on their cause.

    Missing packages, lack of memory and problems of a device are distinguished from damaged or mismatched weights, so
    that users don't train a pipeline again without need.

    name (str): Name of the component.
    source (str): Path or description of the serialized component.
    """
    what = f"Cannot load the component '{name}' from {source}"
    try:
        yield
    except OSError:
        raise
    except MissingPackageError as error:
        raise MissingPackageError(f"{what}: {error.reason}", error.remedy) from error
    except ImportError as error:
        raise ImportError(f"{what}: {error}. Install the missing package, then load again.") from error
    except Exception as error:
        # torch may not be installed, so its exception is identified by name.
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            raise MemoryError(
                f"{what}: {error}. There is not enough memory. End other programs that use it, or load the "
                "pipeline on the CPU, with spacy.require_cpu() before spacy.load()."
            ) from error
        if isinstance(error, RuntimeError):  # torch raises it for devices, and for weights with other shapes.
            raise RuntimeError(
                f"{what}: {error}. If the GPU causes the error, load the pipeline on the CPU, with "
                "spacy.require_cpu() before spacy.load(). Otherwise load the weights with the config.cfg that was "
                "saved with them."
            ) from error
        if isinstance(error, RemedyError):
            raise RemedyError(f"{what}: {error.reason}", error.remedy) from error
        raise RemedyError(f"{what}: {type(error).__name__}: {str(error).rstrip('.')}", _OTHER_CONFIG) from error
