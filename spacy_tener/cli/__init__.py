"""`python -m spacy tener ...`. spaCy imports this by its entry point `spacy_cli`."""

from ._app import tener_cli
from .config import config_cli
from .convert import convert_cli
from .evaluate import evaluate_cli
from .plot import plot_cli
from .table import table_cli
from .vectors import vectors_cli

__all__ = ["config_cli", "convert_cli", "evaluate_cli", "plot_cli", "table_cli", "tener_cli", "vectors_cli"]
