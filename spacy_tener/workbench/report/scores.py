"""Precision, recall and F1 of entities: from counts, in metrics.json, over seeds, and compared between systems.

All scores are between 0 and 1. Scores of a group of labels do not follow from those of its labels: F1 of the group is
not their mean, and a precision of 0 does not tell how many entities were found. They follow from counts, and counts of
each document allow to compare two systems.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from spacy.scorer import Scorer
from spacy.tokens import Span
from spacy.training import Example

from ...errors import RemedyError

METRICS = {"p": "precision", "r": "recall", "f": "F1"}
COUNTS_KEY, DOCS_KEY = "ents_counts", "ents_counts_per_doc"
RESAMPLES = 10_000
_AT_ONCE = 500
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Score:
    """Precision, recall and F1."""

    p: float
    r: float
    f: float


class Confusion(NamedTuple):
    """Counts of entities: found and right (`tp`), found and wrong (`fp`), and missed (`fn`)."""

    tp: int
    fp: int
    fn: int

    @property
    def gold(self) -> int:
        return self.tp + self.fn

    @property
    def score(self) -> Score:
        return Score(*(float(score_counts(np.array(self), metric)) for metric in METRICS))


@dataclass(frozen=True)
class Scores:
    """The scores of one run on one part of a corpus. `spacy evaluate` writes no counts, `spacy tener evaluate` does.

    labels: The scores by label.
    counts: The counts by label.
    docs: The counts of each document.
    speed: Tokens per second.
    """

    overall: Score
    labels: Mapping[str, Score]
    counts: Mapping[str, Confusion] | None = None
    docs: tuple[Confusion, ...] | None = None
    speed: float | None = None


class CountingScorer(Scorer):
    """spaCy's scorer, with additional scores: `ents_counts`, label -> tp, fp, fn, and `ents_counts_per_doc`, the list
    [tp, fp, fn] of each document.

    examples: The examples scored last, with the pipeline's entities.
    """

    examples: Sequence[Example] = ()

    def score(self, examples: Iterable[Example], *, per_component: bool = False) -> dict[str, Any]:
        self.examples = examples = list(examples)
        docs = [count_entities(example) for example in examples]
        labels = sorted(set().union(*docs))
        counts = {label: total(each[label] for each in docs if label in each)._asdict() for label in labels}
        scores: dict[str, Any] = super().score(examples, per_component=per_component)
        return {**scores, COUNTS_KEY: counts, DOCS_KEY: [total(each.values()) for each in docs]}


def count_entities(example: Example) -> dict[str, Confusion]:
    """Count entities by label, by the rules of `spacy.scorer.get_ner_prf`.

    An entity found on a token with missing annotation is neither right nor wrong.
    """
    if not example.reference.has_annotation("ENT_IOB"):
        return {}
    gold = {(ent.label_, ent.start, ent.end) for ent in example.reference.ents}
    counts = {label: [0, 0, 0] for label in {ent.label_ for ent in (*example.predicted.ents, *example.reference.ents)}}
    for _, found in known_entities(example):
        counts[found[0]][0 if found in gold else 1] += 1
        gold.discard(found)
    for label, _, _ in gold:
        counts[label][2] += 1
    return {label: Confusion(*each) for label, each in counts.items()}


def known_entities(example: Example) -> Iterator[tuple[Span, tuple[str, int, int]]]:
    """Yield the found entities on annotated tokens, each with its label, start and end in tokens of the reference."""
    to_reference = example.alignment.x2y
    for ent in example.predicted.ents:
        indices = to_reference[ent.start : ent.end]
        if len(indices):
            start, end = int(indices[0]), int(indices[-1]) + 1
            if all(token.ent_iob for token in example.reference[start:end]):
                yield ent, (ent.label_, start, end)


def total(counts: Iterable[Confusion]) -> Confusion:
    """Add up the counts of several labels or documents, for micro-averaged scores."""
    return Confusion(*map(sum, zip((0, 0, 0), *counts, strict=True)))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object."""
    try:
        data = json.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise RemedyError(f"{path}: cannot be read: {error.strerror or error}", "Check the path.") from error
    except ValueError as error:  # bytes that are not UTF-8 too
        raise RemedyError(f"{path}: not valid JSON: {error}", "Write it again, or remove the run.") from error
    if not isinstance(data, dict):
        raise RemedyError(f"{path}: expected a JSON object, but got: {type(data).__name__}", "Write it again.")
    return data


def read_scores(path: Path) -> Scores:
    """Read the output of `spacy evaluate` or `spacy tener evaluate`."""
    return parse_scores(read_json(path), path)


def parse_scores(data: Mapping[str, Any], source: Path) -> Scores:
    """Return the scores of entities among those that spaCy reports.

    source: The file, for errors.
    """
    try:
        counts, docs = data.get(COUNTS_KEY), data.get(DOCS_KEY)
        return Scores(
            overall=Score(p=float(data["ents_p"]), r=float(data["ents_r"]), f=float(data["ents_f"])),
            labels={label: Score(**each) for label, each in (data.get("ents_per_type") or {}).items()},
            counts=None if counts is None else {label: Confusion(**each) for label, each in counts.items()},
            docs=None if docs is None else tuple(Confusion(*map(int, each)) for each in docs),
            speed=None if data.get("speed") is None else float(data["speed"]),
        )
    except KeyError as error:
        raise RemedyError(f"{source}: there is no {error}", "Score a pipeline that finds entities.") from error
    except (TypeError, ValueError, AttributeError) as error:
        reason = f"{source}: these are no scores of entities: {error}"
        raise RemedyError(reason, "Score on data that has entities annotated.") from error


def dev_scores(meta: Path, kept: Path | None = None) -> Scores | None:
    """Return the scores on dev: those in the file `kept` if it exists, or else in a pipeline's meta.json."""
    if kept is not None and kept.is_file():
        return read_scores(kept)
    performance = read_json(meta).get("performance", {}) if meta.is_file() else {}
    return parse_scores(performance, meta) if performance.get("ents_f") is not None else None


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


def bootstrap_p(ours: NDArray[np.int64], baseline: NDArray[np.int64], metric: str) -> float:
    """Return the two-sided probability, under no difference, of mean scores so far apart, by a bootstrap over test
    documents and seeds together. It is paired: both systems are scored on the same resampled documents.

    A handful of seeds tells little of how far seeds differ. Where they differ by more than documents do, p is somewhat
    too small: for 3 seeds it is below 0.05 for one in ten pairs of equal systems.

    ours, baseline: right, wrong and missed entities. *Shape* [seeds, documents, 3]
    """
    rng = np.random.default_rng(0)
    systems = (ours, baseline)
    observed = [score_counts(counts.sum(axis=1), metric) for counts in systems]
    drawn: list[list[Floats]] = [[], []]
    for times in _draws(rng, ours.shape[1]):
        for counts, resampled in zip(systems, drawn, strict=True):
            resampled.append(score_counts(np.tensordot(times, counts, axes=(1, 1)), metric))
    first, second = (_means(np.concatenate(each), seen, rng) for each, seen in zip(drawn, observed, strict=True))
    difference = observed[0].mean() - observed[1].mean()
    # Less rounding errors: where nothing differs, all differences are as far from the observed one as zero.
    farther = int((np.abs(first - second - difference) >= abs(difference) - 1e-12).sum())
    return (farther + 1) / (RESAMPLES + 1)


def _draws(rng: np.random.Generator, n_docs: int) -> Iterator[Floats]:
    """Yield the number of times that each document is drawn. *Shape* [resamples, documents], some resamples at once"""
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

    *Shape* by_seed, on drawn documents: [resamples, seeds]; observed, on all documents: [seeds]; result: [resamples]
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


def score_counts(counts: NDArray[np.int64] | Floats, metric: str) -> Floats:
    """Return precision, recall or F1 of counts of right, wrong and missed entities. *Shape* [..., 3] -> [...]"""
    tp, fp, fn = np.moveaxis(counts, -1, 0)
    below = {"p": tp + fp, "r": tp + fn, "f": tp + (fp + fn) / 2}[metric]
    found: Floats = tp / np.maximum(below, 0.5)
    return found


def welch_p(ours: Sequence[float], baseline: Sequence[float]) -> float | None:
    """Return the p of Welch's two-sided t-test over seeds; None where there is no deviation to judge by."""
    if min(len(ours), len(baseline)) < 2 or len(set(ours)) == len(set(baseline)) == 1:
        return None
    try:
        from scipy.stats import ttest_ind
    except ImportError as error:
        raise RemedyError("Comparing with a baseline needs scipy", "pip install 'spacy_tener[stats]'") from error
    return float(ttest_ind(ours, baseline, equal_var=False).pvalue)
