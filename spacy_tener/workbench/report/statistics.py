"""Mean and standard deviation over seeds, and the paired t-test between two systems."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_TINY = 1e-300
_MAX_STEPS = 10_000


@dataclass(frozen=True)
class Summary:
    """Several measurements of one thing.

    sd: Their standard deviation with n - 1 below, None where there is one or where a paper printed none.
    n: How many there are, None where a paper does not say so.
    """

    mean: float
    sd: float | None = None
    n: int | None = None


@dataclass(frozen=True)
class PairedTest:
    """How far one system is from another over the seeds that both have.

    difference: The mean difference.
    t, p: The statistic and the two-sided probability under no difference, None with fewer than two seeds.
    """

    n: int
    difference: float
    t: float | None
    p: float | None


def summarize(values: Sequence[float]) -> Summary:
    return Summary(
        mean=statistics.fmean(values), sd=statistics.stdev(values) if len(values) > 1 else None, n=len(values)
    )


def paired_t_test(ours: Mapping[int, float], baseline: Mapping[int, float]) -> PairedTest | None:
    """Student's paired t-test over the seeds in common; None where there are none."""
    differences = [ours[seed] - baseline[seed] for seed in sorted(ours.keys() & baseline.keys())]
    n = len(differences)
    if n < 2:
        return PairedTest(n=n, difference=differences[0], t=None, p=None) if n else None
    mean, sd = statistics.fmean(differences), statistics.stdev(differences)
    t = mean / (sd / math.sqrt(n)) if sd else _limit(mean)
    return PairedTest(n=n, difference=mean, t=t, p=two_sided_p(t, n - 1))


def _limit(mean: float) -> float:
    """Student's t where the deviation is zero: no difference at all, or the same one every time."""
    return math.copysign(math.inf, mean) if mean else 0.0


def two_sided_p(t: float, degrees: int) -> float:
    """The probability that Student's t is at least so far from zero."""
    if math.isinf(t):
        return 0.0
    return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t))


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    # The fraction converges fast below the distribution's mean; above it, so does that of the other tail.
    if x > (a + 1) / (a + b + 2):
        return 1 - incomplete_beta(b, a, 1 - x)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    return math.exp(log_front) / (a * _beta_fraction(a, b, x))


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d_1/(1 + d_2/(1 + ...)) of I_x(a, b), by Lentz's method."""
    value, c, d = 1.0, 1.0, 0.0
    for step in range(1, _MAX_STEPS):
        numerator = _beta_numerator(a, b, x, step)
        c = 1 + numerator / (c or _TINY)
        d = 1 / ((1 + numerator * d) or _TINY)
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _beta_numerator(a: float, b: float, x: float, step: int) -> float:
    m = step // 2
    if step % 2 == 0:
        return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
    return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
