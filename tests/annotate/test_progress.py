"""Test the progress messages of an annotation job: a line per minute, or a progress bar on a terminal."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from tqdm import tqdm

from spacy_tener.annotate import local
from spacy_tener.annotate.local import Progress
from spacy_tener.annotate.output import PartStats
from spacy_tener.annotate.records import Part


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr(local, "time", SimpleNamespace(monotonic=lambda: now.seconds))
    return now


def test_progress_line_per_minute_has_total_counts(clock) -> None:
    lines: list[str] = []
    with Progress(1000, lines.append) as progress:
        for clock.seconds, before in ((10, True), (60, False), (61, False), (121, False), (122, False)):
            progress(Part(0), PartStats(2000, 61_000, 3, 1), before)
    assert lines == ["6,000 texts, 9 entities, 3 errors", "10,000 texts, 15 entities, 5 errors"]


def test_progress_bar_is_monotonic_and_rate_ignores_resumed_parts(monkeypatch) -> None:
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    bars = []

    def bar(**options):
        bars.append(tqdm(**options, file=terminal, mininterval=0, miniters=1))
        return bars[-1]

    monkeypatch.setattr(local, "tqdm", bar)
    with Progress(1000, pytest.fail) as progress:
        positions = []
        for position, before in ((400, True), (700, False), (600, False)):
            progress(Part(0, position=position), PartStats(1, 10), before)
            positions.append((bars[0].n, bars[0].initial))
    assert positions == [(400, 400), (700, 400), (700, 400)]
    assert re.search(r" 70% .*<\d\d:\d\d, 2 texts, 0 entities, 0 errors", terminal.getvalue())
