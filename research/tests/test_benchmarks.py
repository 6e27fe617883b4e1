"""Tests of the benchmark scripts, which import research although it is not installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CALIBRATION = Path(__file__).parents[1] / "benchmarks" / "calibration.py"


def test_a_script_is_run_from_any_directory(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, CALIBRATION, "--help"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "usage: calibration.py" in ran.stdout
