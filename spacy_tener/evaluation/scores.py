"""Count true positives, false positives and false negatives of predicted entities, for `spacy tener evaluate`.

The counts follow the same rules as spaCy's scorer, and therefore agree with its precision and recall.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example

from ..errors import UserError
from ..pipeline.entities import offsets_of
from ..pipeline.scoring import CharComparison, predicted_offsets, score_char_entities
from ..pipeline.tener_ner import TenerNER
from ..types import EntityOffsets

COUNTS_KEY, DOCS_KEY, INTERVAL_KEY = "ents_counts", "ents_counts_per_doc", "ents_f_interval"


class Confusion(NamedTuple):
    """Numbers of true positives, false positives and false negatives."""

    tp: int
    fp: int
    fn: int


# A predicted entity's offsets in the predicted Doc and in the reference Doc. The second element is None if the
# reference Doc has no annotation there, and the entity is therefore not scored.
Found = tuple[EntityOffsets, EntityOffsets | None]


class CountingScorer(Scorer):
    """A spaCy scorer that adds counts of true positives, false positives and false negatives to the scores.

    The score `ents_counts` maps each label to its counts `tp`, `fp` and `fn`. The score `ents_counts_per_doc` is a list
    with `[tp, fp, fn]` for each Doc. The score `ents_f_interval` is the 95 % confidence interval of `ents_f`.
    """

    def score(self, examples: Iterable[Example], *, per_component: bool = False) -> dict[str, Any]:
        examples = list(examples)
        compare = comparison_of(self.nlp)
        docs = [count_entities(example, compare) for example in examples]
        labels = sorted(set().union(*docs))
        counts = {label: total(counts[label] for counts in docs if label in counts)._asdict() for label in labels}
        scores: dict[str, Any] = super().score(examples, per_component=per_component)
        per_doc = [total(counts.values()) for counts in docs]
        return {**scores, COUNTS_KEY: counts, DOCS_KEY: per_doc, INTERVAL_KEY: f1_interval(per_doc)}


def comparison_of(nlp: Language) -> Callable[[Example], Iterator[Found]]:
    """Return the function that compares predicted and gold entities as the pipeline's scorer does.

    If several components score entities, the last component's scorer is used, as in `nlp.evaluate`.

    RETURNS (Callable[[Example], Iterator[Found]]): `compare_characters` or `compare_tokens`.
    """
    pipes = [nlp.get_pipe(name) for name in nlp.pipe_names if "ents_f" in nlp.get_pipe_meta(name).scores]
    for pipe in reversed(pipes):
        scorer = pipe.active_scorer if isinstance(pipe, TenerNER) else getattr(pipe, "scorer", None)
        if scorer is score_char_entities:
            return compare_characters
        if scorer is not None:
            break
    return compare_tokens


def compare_tokens(example: Example) -> Iterator[Found]:
    """Yield each predicted entity with its offsets in the reference Doc, based on spaCy's token alignment.

    `spacy.scorer.get_ner_prf` uses the same alignment.
    """
    to_reference = example.alignment.x2y
    for ent in example.predicted.ents:
        indices = to_reference[ent.start : ent.end]
        reference_span = None
        if len(indices):
            span = example.reference[int(indices[0]) : int(indices[-1]) + 1]
            if all(token.ent_iob for token in span):
                reference_span = span.start_char, span.end_char, ent.label_
        yield offsets_of(ent), reference_span


def compare_characters(example: Example) -> Iterator[Found]:
    """Yield each predicted entity with its offsets in the reference Doc, based on characters.

    The scorer `spacy_tener.char_ner_scorer.v1` uses the same alignment.
    """
    comparison = CharComparison(example.reference, example.predicted)
    for found in sorted(predicted_offsets(example.predicted)):
        key = comparison.key(found)
        yield found, None if comparison.is_correct(key) is None else comparison.gold_offsets(key)


def count_entities(
    example: Example, compare: Callable[[Example], Iterator[Found]] = compare_tokens
) -> dict[str, Confusion]:
    """Count true positives, false positives and false negatives by label.

    Predicted entities are ignored where the reference Doc has no annotation.

    compare (Callable[[Example], Iterator[Found]]): Function that yields each predicted entity with its offsets in the
        reference Doc.
    RETURNS (dict[str, Confusion]): The counts for each label.
    """
    if not example.reference.has_annotation("ENT_IOB"):
        return {}
    missed = set(map(offsets_of, example.reference.ents))
    found = list(compare(example))
    counts = {label: [0, 0, 0] for *_, label in (*missed, *(reference_span for reference_span, _ in found))}
    for _, reference_span in found:
        if reference_span:
            counts[reference_span[2]][0 if reference_span in missed else 1] += 1
            missed.discard(reference_span)
    for *_, label in missed:
        counts[label][2] += 1
    return {label: Confusion(*triple) for label, triple in counts.items()}


def count_confusions(gold: Set[EntityOffsets], found: Set[EntityOffsets]) -> dict[str, Confusion]:
    """Compare a text's gold entities and predicted entities, and count them by label."""
    labels = {label for *_, label in gold | found}
    groups = gold & found, found - gold, gold - found
    counts = [Counter(label for *_, label in entities) for entities in groups]
    return {label: Confusion(*(count[label] for count in counts)) for label in labels}


def total(counts: Iterable[Confusion]) -> Confusion:
    """Add up the counts of several labels or Docs."""
    return Confusion(*map(sum, zip((0, 0, 0), *counts, strict=True)))


def f1_interval(
    docs: Sequence[Confusion], confidence: float = 0.95, n_samples: int = 1000
) -> tuple[float, float] | None:
    """Return a confidence interval of F1, computed by a percentile bootstrap over texts.

    Each sample draws as many texts as there are, with replacement, and computes F1 (micro average). Texts are drawn
    instead of entities, because the errors in a text depend on each other.

    docs (Sequence[Confusion]): The counts of each text.
    confidence (float): The confidence level.
    n_samples (int): Number of bootstrap samples.
    RETURNS (tuple[float, float] | None): The bounds, from 0 to 1. None if there are fewer than two texts with entities.
    """
    with_entities = [count for count in docs if any(count)]
    if len(with_entities) < 2:
        return None
    # Texts with the same counts are interchangeable, so draw how often each distinct triple of counts occurs in a
    # sample. The memory then doesn't grow with the number of texts. The seed makes the result reproducible.
    counts, frequencies = np.unique(np.array(with_entities, dtype=np.int64), axis=0, return_counts=True)
    n_texts = len(with_entities)
    weights = np.random.default_rng(0).multinomial(n_texts, frequencies / n_texts, size=n_samples)
    tp, fp, fn = (weights @ counts).T
    f1 = 2 * tp / (2 * tp + fp + fn)
    low, high = np.quantile(f1, [(1 - confidence) / 2, (1 + confidence) / 2]).tolist()
    return low, high


def score_rows(scores: Mapping[str, Any]) -> list[list[Any]]:
    """Return the rows of a score table: label, precision, recall, F1 and `[tp, fp, fn]`.

    The first row contains the micro average over all labels.
    """
    counts = {label: list(count.values()) for label, count in scores.get(COUNTS_KEY, {}).items()}
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    rows = [["All", *(scores[f"ents_{part}"] for part in "prf"), total or None]]
    for label, score in sorted((scores["ents_per_type"] or {}).items()):
        rows.append([label, *(score[part] for part in "prf"), counts.get(label)])
    return rows


def scores_json(scores: Mapping[str, Any]) -> str:
    """Serialize scores to JSON with one score per line.

    Standard indentation would put every number in `ents_counts_per_doc` on a separate line.
    """
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in scores.items()]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


def read_json(path: Path, fix: str = "Write it again, or remove the run.") -> dict[str, Any]:
    """Read a JSON file that contains an object.

    Raise an error if the file cannot be read, is not valid JSON, or contains another type.

    fix (str): Suggested fix, which is added to the error message.
    """
    try:
        data = json.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}", fix) from error
    except ValueError as error:  # UnicodeDecodeError is a subclass of ValueError
        raise UserError(f"{path}: not valid JSON: {error}", fix) from error
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected a JSON object, but got: {type(data).__name__}", fix)
    return data
