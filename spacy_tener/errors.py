"""User-facing errors, each with a remedy, and words of messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class RemedyError(ValueError):
    """Error with a place, a reason and a remedy.

    reason (str): what is wrong, without the place and without a full stop.
    remedy (str): what to do, in one or more whole sentences.
    place (str): file and line, if the error is in a file.
    """

    def __init__(self, reason: str, remedy: str, *, place: str = "") -> None:
        self.reason = reason
        self.remedy = remedy
        self.place = place
        super().__init__(f"{place}: {reason}. {remedy}" if place else f"{reason}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions are pickled between processes; by default, unpickling calls __init__ with the message alone.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(error_type: type[RemedyError], args: tuple[Any, ...], state: dict[str, Any]) -> RemedyError:
    error = error_type.__new__(error_type, *args)
    error.__dict__.update(state)
    return error


class InputError(RemedyError):
    """Error in an input file, or in its path.

    source (str): name of the file, or of what is read instead.
    line (int | None): number of the line, counted from 1.
    """

    def __init__(self, source: str, reason: str, remedy: str, *, line: int | None = None) -> None:
        self.source = source
        self.line = line
        super().__init__(reason, remedy, place=source if line is None else f"{source}:{line}")


class MissingPackageError(ImportError):
    """Error about a package that is not installed: what it is needed for, and how to install it.

    reason, remedy (str): as in `RemedyError`.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason = reason
        self.remedy = remedy
        super().__init__(f"{reason}. {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.remedy)


def check_package(name: str, needed: str, remedy: str = "") -> Path:
    """Return the directory of an installed package; raise if it is not installed.

    needed (str): Begin of a message that ends with the package's name: what needs it.
    remedy (str): What to do; by default the command that installs it.
    """
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise MissingPackageError(f"{needed} the package {name}, which is not installed", remedy or install(name))
    return Path(spec.origin).parent


def install(*packages: str) -> str:
    """Return the command that installs packages.

    It names these packages, not an extra of ours: until ours is on an index, anybody could register the name there.
    """
    command = f"pip install {' '.join(packages)}"
    if "torch" in packages:  # On any Linux pip takes the build for GPUs, 5 GB.
        command += " (without a GPU, first torch's build for the CPU: https://pytorch.org/get-started/locally/)"
    return command


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun, as in "1 text" or "2 entities"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def check_choice(what: str, value: str, choices: Iterable[str]) -> None:
    """Raise if a value is not one of the choices. what: name of the option, such as `metric`."""
    choices = list(choices)
    if value not in choices:
        remedy = f"Use one of: {', '.join(choices)}." if choices else "There is none."
        raise RemedyError(f"Unknown {what} '{value}'", remedy)


_OTHER_CONFIG = (
    "The weights belong to another config, or a file is damaged. Load the weights with the config.cfg that was saved "
    "beside them. Restore the files from a copy if it is that one."
)


@contextmanager
def wrap_load_errors(name: str, source: str) -> Iterator[None]:
    """Add a remedy to errors of loading by their cause: a missing package or memory is no reason to train again."""
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
        # torch's error is recognised by its name, since torch may not be installed.
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            raise MemoryError(
                f"{what}: {error}. There is not enough memory: end what else uses it, or load the pipeline on the CPU, "
                "by spacy.require_cpu() before spacy.load()."
            ) from error
        if isinstance(error, RuntimeError):  # torch's: of a device, or of the weights of another library's layer
            raise RuntimeError(
                f"{what}: {error}. If a GPU is at fault, load the pipeline on the CPU, by spacy.require_cpu() before "
                "spacy.load(). Otherwise load the weights with the config.cfg that was saved beside them."
            ) from error
        if isinstance(error, RemedyError):
            raise RemedyError(f"{what}: {error.reason}", error.remedy) from error
        raise RemedyError(f"{what}: {type(error).__name__}: {str(error).rstrip('.')}", _OTHER_CONFIG) from error
