"""Scores over seeds, and how probable the difference of two systems is by chance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from research.scores import Floats, score_counts
from spacy_tener.errors import RemedyError

RESAMPLES = 10_000
_AT_ONCE = 500


@dataclass(frozen=True)
class Summary:
    """Several measurements of one thing.

    sd: Their standard deviation with n - 1 below, None where there is one or where a paper printed none.
    n: How many there are, None where a paper does not say so.
    """

    mean: float
    sd: float | None = None
    n: int | None = None


def summarize(values: Sequence[float]) -> Summary:
    """Return mean and standard deviation."""
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Summary(mean=statistics.fmean(values), sd=sd, n=len(values))


def bootstrap_p(candidate: NDArray[np.int64], baseline: NDArray[np.int64], metric: str) -> float:
    """Return the two-sided probability, under no difference, of mean scores so far apart, by a bootstrap over test
    documents and seeds together. It is paired: both systems are scored on the same resampled documents.

    A handful of seeds tells little of how far seeds differ. Where they differ by more than documents do, p is somewhat
    too small: for 3 seeds it is below 0.05 for one in ten pairs of equal systems.

    candidate, baseline: Right, wrong and missed entities. *Shape:* (seeds, documents, 3)
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
    # Less rounding errors: where nothing differs, all differences are as far from the observed one as zero.
    farther = int((np.abs(first - second - difference) >= abs(difference) - 1e-12).sum())
    return (farther + 1) / (RESAMPLES + 1)


def _draws(rng: np.random.Generator, n_docs: int) -> Iterator[Floats]:
    """Yield the number of times that each document is drawn, for some resamples. *Shape:* (resamples, documents)"""
    for _ in range(RESAMPLES // _AT_ONCE):
        drawn = rng.integers(n_docs, size=(_AT_ONCE, n_docs)) + n_docs * np.arange(_AT_ONCE)[:, None]
        yield np.bincount(drawn.ravel(), minlength=_AT_ONCE * n_docs).reshape(_AT_ONCE, n_docs).astype("d")


def _means(by_seed: Floats, observed: Floats, rng: np.random.Generator) -> Floats:
    """Return mean scores of drawn seeds on drawn documents.

    Of n seeds n - 1 are drawn, with replacement: then the variance of their mean is what n seeds tell of it, where
    drawing n would make it too small by the factor (n - 1) / n. What is chance in a seed's score on a document varies
    with the documents drawn already; for drawn seeds not to add it again, their deviations are scaled down to what
    seeds differ by beyond it (as in Owen 2007, The pigeonhole bootstrap, where both would be counted). A single seed
    says nothing of other seeds, so that only documents are drawn then.

    by_seed: On drawn documents. *Shape:* (resamples, seeds)
    observed: On all documents. *Shape:* (seeds,)
    RETURNS: *Shape:* (resamples,)
    """
    means: Floats = by_seed.mean(axis=1)
    n_seeds = len(observed)
    variance = by_seed.var(axis=1, ddof=1).mean() if n_seeds > 1 else 0.0
    if variance == 0.0:
        return means
    # On drawn documents seeds differ by what they differ by on all of them, and once more by chance.
    beyond_chance = max(2 * observed.var(ddof=1) - variance, 0.0)
    drawn = np.take_along_axis(by_seed, rng.integers(n_seeds, size=(len(means), n_seeds - 1)), axis=1)
    means += math.sqrt(beyond_chance / variance) * (drawn.mean(axis=1) - means)
    return means


def welch_p(candidate: Sequence[float], baseline: Sequence[float]) -> float | None:
    """Return the p of Welch's two-sided t-test over seeds; None where there is no deviation to judge by."""
    if min(len(candidate), len(baseline)) < 2 or len(set(candidate)) == len(set(baseline)) == 1:
        return None
    try:
        from scipy.stats import ttest_ind
    except ImportError as error:
        raise RemedyError(
            "Comparing with a baseline needs scipy", "pip install -r research/requirements.txt"
        ) from error
    return float(ttest_ind(candidate, baseline, equal_var=False).pvalue)
