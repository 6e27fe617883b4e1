"""`python -m spacy tener ...`. spaCy imports this by its entry point `spacy_cli`."""

from . import (
    calibrate,
    card,
    config,
    convert,
    debug_data,
    evaluate,
    explain,
    grid,
    plot,
    review,
    search,
    self_train,
    serve,
    silver,
    suggest,
    table,
    vectors,
)
from ._app import tener_cli

COMMANDS = (
    calibrate,
    card,
    config,
    convert,
    debug_data,
    evaluate,
    explain,
    grid,
    plot,
    review,
    search,
    self_train,
    serve,
    silver,
    suggest,
    table,
    vectors,
)
"""The modules of the commands, which add themselves to `tener_cli`."""

__all__ = ["COMMANDS", "tener_cli"]
