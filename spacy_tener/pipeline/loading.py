"""Errors of loading a component, each with its remedy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import MissingPackageError, RemedyError

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
