"""Means over seeds, and significance tests for the difference between two systems, for the score tables of `rows`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.scores import Floats, score_counts
from spacy_tener.errors import UserError

RESAMPLES = 10_000
_AT_ONCE = 500


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of several measurements.

    sd: Sample standard deviation (n - 1). None for a single measurement, or if a paper reports none.
    n: Number of measurements. None if a paper does not report it.
    """

    mean: float
    sd: float | None = None
    n: int | None = None


def summarize(values: Sequence[float]) -> Summary:
    """Return the mean and the sample standard deviation."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Summary(mean=statistics.fmean(values), sd=sd, n=len(values))


def bootstrap_p(candidate: NDArray[np.int64], baseline: NDArray[np.int64], metric: str) -> float:
    """Return the two-sided p-value of the difference between the mean scores of two systems, computed by a paired
    bootstrap over test documents and seeds. Both systems are scored on the same resampled documents.

    The p-value is slightly too small if the variance between seeds is larger than the variance between documents, since
    a few seeds estimate their variance poorly. In this case, with 3 seeds, p is below 0.05 for one in ten pairs of
    equal systems.

    candidate, baseline: Counts of true positives, false positives and false negatives. *Shape:* (seeds, documents, 3)
    """
    rng = np.random.default_rng(0)
    systems = (candidate, baseline)
    observed = [score_counts(counts.sum(axis=1), metric) for counts in systems]
    drawn: list[list[Floats]] = [[], []]
    for times in _draws(rng, candidate.shape[1]):
        for counts, resampled in zip(systems, drawn, strict=True):
            resampled.append(score_counts(np.tensordot(times, counts, axes=(1, 1)), metric))
    first, second = (_means(np.concatenate(parts), scores, rng) for parts, scores in zip(drawn, observed, strict=True))
    difference = observed[0].mean() - observed[1].mean()
    # The tolerance covers rounding errors: for identical systems, all resampled differences equal the observed one.
    farther = int((np.abs(first - second - difference) >= abs(difference) - 1e-12).sum())
    return (farther + 1) / (RESAMPLES + 1)


def _draws(rng: np.random.Generator, n_docs: int) -> Iterator[Floats]:
    """Yield batches of resamples: how often each document is drawn. *Shape:* (resamples, documents)"""
    for _ in range(RESAMPLES // _AT_ONCE):
        drawn = rng.integers(n_docs, size=(_AT_ONCE, n_docs)) + n_docs * np.arange(_AT_ONCE)[:, None]
        yield np.bincount(drawn.ravel(), minlength=_AT_ONCE * n_docs).reshape(_AT_ONCE, n_docs).astype("d")


def _means(by_seed: Floats, observed: Floats, rng: np.random.Generator) -> Floats:
    """Return the mean score of resampled seeds on resampled documents.

    n - 1 of n seeds are drawn with replacement. The variance of their mean then estimates the variance of a mean over n
    seeds without bias; drawing n seeds would underestimate it by the factor (n - 1) / n.

    The scores of seeds differ on resampled documents for two reasons: seeds really differ, and their scores on a sample
    of documents vary by chance. The document bootstrap already contains the second part. To count it only once, the
    deviations of the drawn seeds are scaled down to the first part (Owen 2007, "The pigeonhole bootstrap", describes
    the variant that counts both). A single seed has no estimated variance, so only documents are drawn.

    by_seed: Scores on resampled documents. *Shape:* (resamples, seeds)
    observed: Scores on all documents. *Shape:* (seeds,)
    RETURNS: Mean scores. *Shape:* (resamples,)
    """
    means: Floats = by_seed.mean(axis=1)
    n_seeds = len(observed)
    variance = by_seed.var(axis=1, ddof=1).mean() if n_seeds > 1 else 0.0
    if variance == 0.0:
        return means
    # Var(seeds on resampled documents) = Var(seeds on all documents) + Var(chance), and Var(seeds on all documents)
    # contains the chance part once itself. So Var(seeds) - Var(chance) = 2 * Var(all documents) - Var(resampled).
    beyond_chance = max(2 * observed.var(ddof=1) - variance, 0.0)
    drawn = np.take_along_axis(by_seed, rng.integers(n_seeds, size=(len(means), n_seeds - 1)), axis=1)
    means += math.sqrt(beyond_chance / variance) * (drawn.mean(axis=1) - means)
    return means


def welch_p(candidate: Sequence[float], baseline: Sequence[float]) -> float | None:
    """Return the p-value of Welch's two-sided t-test over seeds. Return None if a system has a single seed, or if
    neither system has any variance."""
    if min(len(candidate), len(baseline)) < 2 or len(set(candidate)) == len(set(baseline)) == 1:
        return None
    try:
        from scipy.stats import ttest_ind
    except ImportError as error:
        raise UserError("Comparing with a baseline needs scipy", "pip install -r research/requirements.txt") from error
    return float(ttest_ind(candidate, baseline, equal_var=False).pvalue)
