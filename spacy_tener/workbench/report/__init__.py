"""Many runs gathered into tables and figures, beside what the papers printed."""

from .counting import CountingScorer, count_entities
from .curves import has_log
from .errors import ReportError
from .plots import draw_convergence, draw_scores, draw_speed, draw_sweep
from .rows import Options, Report, Row, make_report
from .runs import Found, Run, Unfinished, find_runs
from .settings import has_value
from .tables import FORMATS, render

__all__ = [
    "FORMATS",
    "CountingScorer",
    "Found",
    "Options",
    "Report",
    "ReportError",
    "Row",
    "Run",
    "Unfinished",
    "count_entities",
    "draw_convergence",
    "draw_scores",
    "draw_speed",
    "draw_sweep",
    "find_runs",
    "has_log",
    "has_value",
    "make_report",
    "render",
]
