"""The triangular learning rate schedule: shape, settings and config."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from spacy.util import load_config, registry

from spacy_tener.optim.optimizers import triangular


def first(schedule: Iterator[float], n: int) -> list[float]:
    return list(islice(schedule, n))


def test_triangular_rises_and_falls_linearly() -> None:
    # A warmup of 20 % of 10 steps: it rises in two steps and falls in eight.
    expected = [0.5, 1.0, 0.875, 0.75, 0.625, 0.5, 0.375, 0.25, 0.125, 0.0]
    assert first(triangular(1.0, 10, warmup=0.2), 10) == pytest.approx(expected)


def test_triangular_is_zero_after_last_step() -> None:
    assert first(triangular(1.0, 4), 12)[4:] == [0.0] * 8


def test_triangular_scales_with_max_rate() -> None:
    full, scaled = first(triangular(1.0, 300), 300), first(triangular(7e-4, 300), 300)
    assert scaled == pytest.approx([7e-4 * value for value in full])


def test_triangular_warmup_defaults_to_one_percent() -> None:
    values = first(triangular(1.0, 1000), 1000)
    assert values[:10] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert values[999] == 0.0
    assert values[504] == pytest.approx(495 / 990)


def test_triangular_without_warmup_decreases() -> None:
    assert first(triangular(1.0, 4, warmup=0.0), 4) == pytest.approx([0.75, 0.5, 0.25, 0.0])


@pytest.mark.parametrize("total", [1, 2, 7, 30, 99, 101, 1234])
@pytest.mark.parametrize("warmup", [0.0, 0.01, 0.1, 0.33, 0.9])
def test_triangular_stays_between_zero_and_max_rate(total: int, warmup: float) -> None:
    values = first(triangular(1.0, total, warmup=warmup), total + 5)
    assert all(0.0 <= value <= 1.0 for value in values)
    top = values.index(max(values))
    assert values[: top + 1] == sorted(values[: top + 1])
    assert values[top:] == sorted(values[top:], reverse=True)


@pytest.mark.parametrize("total", [0, "${training.max_steps}"])
def test_triangular_without_total_steps_warms_up_to_constant(total: int | str) -> None:
    """spaCy does not interpolate the variable if it resolves only the section of the optimizer."""
    rising = [step / 10 for step in range(1, 11)]
    assert first(triangular(1.0, total, warmup=0.01), 2000) == pytest.approx([*rising, *[1.0] * 1990], abs=2e-3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: triangular(-1.0, 10), r"triangular.v1: max_rate must be greater than or equal to 0; got -1.0"),
        (lambda: triangular(1.0, -1), r"triangular.v1: total_steps.* must be greater than or equal to 0; got -1"),
        (
            lambda: triangular(1.0, "many"),
            r"triangular.v1: total_steps must be an integer or the variable \$\{training\.max_steps\}; got 'many'",
        ),
        (lambda: triangular(1.0, 10, warmup=1.0), r"triangular.v1: warmup must be less than 1; got 1.0"),
    ],
)
def test_invalid_settings_raise_error(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


CONFIG = """
[rate]
@schedules = "spacy_tener.triangular.v1"
max_rate = 0.001
total_steps = 10
warmup = 0.2
"""


def test_filled_config_round_trips_through_file(tmp_path: Path) -> None:
    path = tmp_path / "config.cfg"
    path.write_text(CONFIG.replace("warmup = 0.2\n", ""), encoding="utf8")
    filled = registry.fill(load_config(path))
    assert filled["rate"]["warmup"] == 0.01
    filled.to_disk(path)
    assert load_config(path) == filled
