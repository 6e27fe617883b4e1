"""`python -m spacy tener ...`. spaCy imports this by its entry point `spacy_cli`."""

from ._app import tener_cli
from .card import card_cli
from .config import config_cli
from .convert import convert_cli
from .evaluate import evaluate_cli
from .grid import grid_cli
from .plot import plot_cli
from .search import search_cli
from .table import table_cli
from .vectors import vectors_cli

__all__ = [
    "card_cli",
    "config_cli",
    "convert_cli",
    "evaluate_cli",
    "grid_cli",
    "plot_cli",
    "search_cli",
    "table_cli",
    "tener_cli",
    "vectors_cli",
]
