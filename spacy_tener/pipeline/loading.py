"""Errors of loading a component, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import MissingPackageError, RemedyError
from ..runtime.weights import WeightsError

# Parts of messages of Thinc and torch about intact weights of other layers or sizes.
_OTHER_CONFIG = ("mismatched structure", "change dimension", "unknown dimension", "in loading state_dict")


class OtherLabelsError(ValueError):
    """The labels are not those of the weights."""


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
        if isinstance(error, RuntimeError) and "cuda" in str(error).lower():
            raise
        raise RemedyError(f"{what}: {_reason(error)}", _remedy(error)) from error


def _reason(error: Exception) -> str:
    if isinstance(error, RemedyError):
        return error.reason
    text = str(error).rstrip(".") or type(error).__name__
    return f"the entry {text} is missing" if isinstance(error, KeyError) and " " not in text else text


def _remedy(error: Exception) -> str:
    if isinstance(error, RemedyError):
        return error.remedy
    if isinstance(error, OtherLabelsError):
        return "Load 'cfg' and 'model' of the same pipeline. Restore them from a copy if one of them was changed."
    if isinstance(error, WeightsError) or any(phrase in str(error) for phrase in _OTHER_CONFIG):
        return (
            "The weights belong to another config: load them with the config.cfg that was saved beside them. "
            "Restore the files from a copy if it is that one."
        )
    return "The files are damaged. Restore them from a copy, or train again."
