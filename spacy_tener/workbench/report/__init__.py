"""Many runs gathered into tables and figures, beside what the papers printed; model cards."""

from .curves import has_log
from .groups import has_value
from .plots import draw_convergence, draw_scores, draw_speed, draw_sweep
from .rows import ScoreTable, make_table
from .runs import Found, Run, find_runs
from .scores import CountingScorer
from .tables import FORMATS, render

__all__ = [
    "FORMATS",
    "CountingScorer",
    "Found",
    "Run",
    "ScoreTable",
    "draw_convergence",
    "draw_scores",
    "draw_speed",
    "draw_sweep",
    "find_runs",
    "has_log",
    "has_value",
    "make_table",
    "render",
]
