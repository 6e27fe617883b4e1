"""Counts of true positives, false positives and false negatives, with the rules of spaCy's scorer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.scorer import Scorer
from spacy.training import Example

from ..errors import RemedyError
from ..pipeline.entities import offsets_of
from ..pipeline.scoring import CharComparison, predicted_offsets, score_char_entities
from ..pipeline.tener_ner import TenerNER
from ..types import EntityOffsets

COUNTS_KEY, DOCS_KEY = "ents_counts", "ents_counts_per_doc"


class Confusion(NamedTuple):
    """Counts of true positives (`tp`), false positives (`fp`) and false negatives (`fn`)."""

    tp: int
    fp: int
    fn: int


# A found entity, and the same entity in character offsets of the reference. The latter is None if annotation is
# missing.
Found = tuple[EntityOffsets, EntityOffsets | None]


class CountingScorer(Scorer):
    """spaCy's scorer with two additional scores.

    `ents_counts` contains the counts tp, fp and fn for each label, and `ents_counts_per_doc` the list [tp, fp, fn] for
    each Doc.

    examples (Sequence[Example]): The examples of the last call of `score`, with the entities of the pipeline.
    """

    examples: Sequence[Example] = ()

    def score(self, examples: Iterable[Example], *, per_component: bool = False) -> dict[str, Any]:
        examples = list(examples)
        compare = comparison_of(self.nlp)
        docs = [count_entities(example, compare) for example in examples]
        labels = sorted(set().union(*docs))
        counts = {label: total(counts[label] for counts in docs if label in counts)._asdict() for label in labels}
        scores: dict[str, Any] = super().score(examples, per_component=per_component)
        return {**scores, COUNTS_KEY: counts, DOCS_KEY: [total(counts.values()) for counts in docs]}


def comparison_of(nlp: Language) -> Callable[[Example], Iterator[Found]]:
    """Return the function that compares entities like the scorer of a pipeline.

    If several components score entities, spaCy keeps the scores of the last one.
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
    """Compare entities by tokens of the reference, like `spacy.scorer.get_ner_prf`."""
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
    """Compare entities by characters of the reference, like `spacy_tener.char_ner_scorer.v1`."""
    comparison = CharComparison(example.reference, example.predicted)
    for found in sorted(predicted_offsets(example.predicted)):
        key = comparison.key(found)
        yield found, None if comparison.is_correct(key) is None else comparison.gold_offsets(key)


def count_entities(
    example: Example, compare: Callable[[Example], Iterator[Found]] = compare_tokens
) -> dict[str, Confusion]:
    """Count entities by label. Entities found where annotation is missing are ignored."""
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


def total(counts: Iterable[Confusion]) -> Confusion:
    """Return the sum of counts, for micro-averaged scores."""
    return Confusion(*map(sum, zip((0, 0, 0), *counts, strict=True)))


def score_rows(scores: Mapping[str, Any]) -> list[list[Any]]:
    """Return rows with label, precision, recall, F1 and counts (tp, fp, fn). The first row is the micro average."""
    counts = {label: list(count.values()) for label, count in scores.get(COUNTS_KEY, {}).items()}
    total = [sum(column) for column in zip(*counts.values(), strict=True)]
    rows = [["All", *(scores[f"ents_{part}"] for part in "prf"), total or None]]
    for label, score in sorted((scores["ents_per_type"] or {}).items()):
        rows.append([label, *(score[part] for part in "prf"), counts.get(label)])
    return rows


def scores_json(scores: Mapping[str, Any]) -> str:
    """Return scores as JSON with one score on each line. Indented JSON would have a line for each count of each Doc."""
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in scores.items()]
    return "{\n  " + ",\n  ".join(lines) + "\n}\n"


def read_json(path: Path, remedy: str = "Write it again, or remove the run.") -> dict[str, Any]:
    """Read a JSON file that contains an object.

    remedy (str): How to fix an invalid file, for the error message.
    """
    try:
        data = json.loads(path.read_text(encoding="utf8"))
    except OSError as error:
        raise RemedyError(f"{path}: cannot be read: {error.strerror or error}", remedy) from error
    except ValueError as error:  # UnicodeDecodeError is a ValueError
        raise RemedyError(f"{path}: not valid JSON: {error}", remedy) from error
    if not isinstance(data, dict):
        raise RemedyError(f"{path}: expected a JSON object, but got: {type(data).__name__}", remedy)
    return data
