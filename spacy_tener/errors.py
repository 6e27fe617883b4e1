"""Exceptions that tell users how to fix a problem, and functions for error messages.

    raise UserError("Unknown tag scheme 'BOI'", "Use one of: BIOES, BMES.")

If a command raises a `UserError`, it prints the message without a traceback and exits with a non-zero status.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any


class UserError(ValueError):
    """An error with a message that explains the problem and how to fix it.

    reason (str): What is wrong, without a full stop.
    fix (str): How to fix it, in one or more full sentences.
    place (str): File and line that contain the error, if any. The message starts with it.
    """

    def __init__(self, reason: str, fix: str, *, place: str = "") -> None:
        self.reason = reason
        self.fix = fix
        self.place = place
        super().__init__(f"{place}: {reason}. {fix}" if place else f"{reason}. {fix}")

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions must be picklable to be passed between processes. By default, unpickling would call `__init__` with
        # the message as the only argument.
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(error_type: type[UserError], args: tuple[Any, ...], state: dict[str, Any]) -> UserError:
    """Create an exception when it is unpickled, without calling `__init__`.

    Subclasses can have an `__init__` with other arguments.
    """
    error = error_type.__new__(error_type, *args)
    error.__dict__.update(state)
    return error


class InputError(UserError):
    """An error in an input file, or an invalid path to it.

    source (str): The file path, or a description of the input, such as "standard input".
    line (int | None): Line number, starting from 1.
    """

    def __init__(self, source: str, reason: str, fix: str, *, line: int | None = None) -> None:
        self.source = source
        self.line = line
        super().__init__(reason, fix, place=source if line is None else f"{source}:{line}")


class MissingPackageError(ImportError):
    """An error that is raised if a required package isn't installed.

    reason (str): The feature that requires the package, as part of a message.
    fix (str): How to install the package.
    """

    def __init__(self, reason: str, fix: str) -> None:
        self.reason = reason
        self.fix = fix
        super().__init__(f"{reason}. {fix}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.fix)


def reason_of(error: Exception) -> str:
    """Return the problem that an exception names, for use in another message. The fix and the final full stop are
    left out."""
    if isinstance(error, UserError):
        return f"{error.place}: {error.reason}" if error.place else error.reason
    return error.reason if isinstance(error, MissingPackageError) else str(error).rstrip(".")


def check_package(name: str, needed: str, fix: str = "") -> Path:
    """Return an installed package's directory, or raise a MissingPackageError if it isn't installed.

    name (str): Import name of the package.
    needed (str): First part of the error message, such as "Calibration requires". It is followed by "the package NAME".
    fix (str): How to fix the error. By default, the command that installs the package.
    """
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise MissingPackageError(
            f"{needed} the package {name}, which is not installed", fix or f"Run `{install(name)}`."
        )
    return Path(spec.origin).parent


def install(*packages: str) -> str:
    """Return the pip command that installs packages, for error messages.

    The command doesn't use this package's extras. The package isn't on PyPI yet, so its name could be registered by
    somebody else.
    """
    command = f"pip install {' '.join(packages)}"
    if "torch" in packages:  # On Linux, the default build includes CUDA and needs 5 GB.
        command += " (without a GPU, first install torch's build for the CPU: https://pytorch.org/get-started/locally/)"
    return command


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """Return a number and a noun in the singular or plural form, such as "1 text" or "2 entities".

    number (int): The number.
    noun (str): The noun in the singular.
    plural (str): The plural, if it isn't formed by adding an "s".
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def check_choice(what: str, value: str, choices: Iterable[str], where: str = "", *, fix_if_empty: str = "") -> None:
    """Raise a UserError if a value isn't a valid choice.

    what (str): Description of the value for the error message, such as `metric`.
    value (str): The value.
    choices (Iterable[str]): The valid choices.
    where (str): Where the value occurs, such as `of tener_ner`. It follows the value in the error message.
    fix_if_empty (str): How to fix the error if there are no valid choices. Required if `choices` can be empty.
    """
    choices = list(choices)
    if value not in choices:
        fix = f"Use one of: {', '.join(choices)}." if choices else fix_if_empty
        raise UserError(f"Unknown {what} '{value}'{where and f' {where}'}", fix)


_OTHER_CONFIG = (
    "The weights belong to another config, or a file is damaged. Load the weights with the config.cfg that was saved "
    "with them. If this config is the right one, restore the files from a backup."
)


@contextmanager
def wrap_load_errors(name: str, source: str) -> Iterator[None]:
    """Context manager that adds a solution to the message of an error raised while a component is loaded.

    Missing packages, insufficient memory and device errors get other messages than damaged or mismatched weights, so
    that users do not train a pipeline again unnecessarily.

    name (str): The component name.
    source (str): Path or description of the serialized component.
    """
    what = f"Cannot load the component '{name}' from {source}"
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        reason = f"{what}: {error.strerror}. Restore the file from a backup, or save the pipeline again"
        # Python chooses the subclass by the error number, for example FileNotFoundError.
        raise OSError(error.errno, reason, error.filename) from error
    except MissingPackageError as error:
        raise MissingPackageError(f"{what}: {error.reason}", error.fix) from error
    except ImportError as error:
        raise ImportError(
            f"{what}: {reason_of(error)}. Install the missing package, then load the pipeline again."
        ) from error
    except Exception as error:
        # Compare the name of torch.OutOfMemoryError, since torch may not be installed.
        if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
            raise MemoryError(
                f"{what}: {reason_of(error)}. There is not enough memory. Close other programs that use memory, "
                "or load the "
                "pipeline on the CPU, with spacy.require_cpu() before spacy.load()."
            ) from error
        if isinstance(error, RuntimeError):  # raised by torch for device errors and for weights with wrong shapes
            raise RuntimeError(
                f"{what}: {reason_of(error)}. If the GPU causes the error, load the pipeline on the CPU, with "
                "spacy.require_cpu() before spacy.load(). Otherwise load the weights with the config.cfg that was "
                "saved with them."
            ) from error
        if isinstance(error, UserError):
            raise UserError(f"{what}: {error.reason}", error.fix) from error
        raise UserError(f"{what}: {type(error).__name__}: {reason_of(error)}", _OTHER_CONFIG) from error
