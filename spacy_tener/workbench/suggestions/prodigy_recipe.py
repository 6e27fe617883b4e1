"""A Prodigy recipe: correct the entities of a pipeline, uncertain texts first.

    prodigy tener.correct DATASET training/model-best raw.txt --label PER,ORG --k-best 3

Like `ner.correct`, with more from `tener_ner`: each entity has its probability, the k best readings are shown below the
text, and Prodigy's `prefer_uncertain` skips texts whose best reading is far more probable than the second. Only Prodigy
imports this module, by its entry point.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import prodigy
from prodigy.components.sorters import prefer_uncertain
from prodigy.util import set_hashes
from spacy.util import load_model, minibatch

from ...errors import RemedyError
from ...pipeline.confidence import Parse
from ...pipeline.finding import Recogniser
from ..annotation_tasks import Task, prodigy_record
from ..vectors.raw_text import find_texts, read_all

BATCH = 32
"""Texts in a batch. The first question appears after one batch."""


@prodigy.recipe(  # type: ignore[untyped-decorator]
    "tener.correct",
    dataset=("Dataset to save answers to", "positional", None, str),
    model=("Pipeline with a trained tener_ner", "positional", None, str),
    source=("Text file, JSONL, .spacy, or a directory of them", "positional", None, str),
    label=("Labels to annotate, separated by commas (default: the pipeline's)", "option", "l", str),
    k_best=("Number of best readings to show below a text", "option", "k", int),
    all_texts=("Ask about all texts in order, not only about uncertain ones", "flag", "A", bool),
    exclude=("Datasets whose texts are skipped, separated by commas", "option", "e", str),
)
def tener_correct(
    dataset: str,
    model: str,
    source: str,
    label: str = "",
    k_best: int = 3,
    all_texts: bool = False,
    exclude: str = "",
) -> dict[str, Any]:
    """Correct the entities that a tener_ner finds, uncertain texts first."""
    if k_best < 1:
        raise RemedyError(f"--k-best {k_best}: less than 1", "Give 1 or more.")
    recogniser = Recogniser.of(load_model(model))
    labels = _names(label) or list(recogniser.ner.labels)
    scored = score_records(recogniser, source, labels, k_best)
    return {
        "dataset": dataset,
        "view_id": "ner_manual",
        "stream": (record for _, record in scored) if all_texts else prefer_uncertain(scored),
        "exclude": _names(exclude) or None,
        "config": {"lang": recogniser.nlp.lang, "labels": labels, "exclude_by": "input"},
    }


def score_records(
    recogniser: Recogniser, source: str, labels: list[str], k_best: int
) -> Iterator[tuple[float, dict[str, Any]]]:
    """Yield a record for each text, with a score for Prodigy's sorters: 1/2 where the two best readings are equally
    probable, 1 where there is only one."""
    for texts in minibatch(read_all(find_texts([source])[0]), BATCH):
        docs = recogniser.read(texts)
        for doc, parses in zip(docs, recogniser.ner.k_best(docs, max(2, k_best)), strict=True):
            best, *others = parses
            task = Task(doc, [each for each in best.entities if each.label in labels], best.probability)
            record = prodigy_record(task)
            for place, parse in enumerate(others[: k_best - 1], start=2):
                record["meta"][f"reading {place}"] = describe(doc.text, parse)
            second = others[0].probability if others else 0.0
            yield 0.5 + (best.probability - second) / 2, set_hashes(record)


def describe(text: str, parse: Parse) -> str:
    """Return a reading as a line: its probability and its entities."""
    entities = (f"{text[each.start : each.end]} {each.label}" for each in parse.entities)
    return " | ".join(chain([f"{parse.probability:.3f}"], entities))


def _names(given: str) -> list[str]:
    return [name.strip() for name in given.split(",") if name.strip()]
