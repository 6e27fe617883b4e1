"""Export texts with suggested entities to doccano, Label Studio and Prodigy.

Used by the command `suggest`. These tools and Python both count offsets in code points, so offsets need no conversion.
`tener convert` imports the annotated texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import quoteattr

from spacy.tokens import Doc

from ..annotate.encoding import dump_jsonl
from ..corpora.annotation import SUGGESTED
from ..pipeline.entities import FoundEntity, outermost

DIGITS = 4
RECORD_ID = "record_id"


@dataclass(frozen=True)
class Task:
    """A text to annotate, with the entities that a model predicts.

    doc (Doc): The tokenized text.
    entities (Sequence[FoundEntity]): The predicted entities.
    probability (float | None): Probability of the best label sequence, if available.
    uncertainty (float | None): The model's uncertainty about the text, if available.
    score (float | None): Length-normalized probability of the best label sequence, if available. See `sequence_score`.
    record_id (Any): The `id` of the input record, if available.
    """

    doc: Doc
    entities: Sequence[FoundEntity]
    probability: float | None = None
    uncertainty: float | None = None
    score: float | None = None
    record_id: Any = None


@dataclass(frozen=True)
class Tool:
    """An annotation tool that texts can be exported to.

    write (Callable[[Sequence[Task]], str]): Function that returns the content of an import file for tasks.
    interface (Callable[[Sequence[str]], str] | None): Function that returns the tool's configuration for some labels.
        None if the tool doesn't need a configuration.
    """

    write: Callable[[Sequence[Task]], str]
    interface: Callable[[Sequence[str]], str] | None = None


def doccano(tasks: Sequence[Task]) -> str:
    """Return tasks in doccano's JSONL format for sequence labelling. doccano stores additional fields as metadata."""

    def record(task: Task) -> dict[str, Any]:
        return {
            "text": task.doc.text,
            "label": [[entity.start, entity.end, entity.label] for entity in task.entities],
            SUGGESTED: True,
            **_metadata(task),
            "probabilities": [_rounded(entity.probability) for entity in task.entities],
        }

    return dump_jsonl(map(record, tasks))


def label_studio(tasks: Sequence[Task]) -> str:
    """Return tasks in Label Studio's JSON format, with the predicted entities as pre-annotations.

    The pre-annotations refer to the tag names `label` and `text` in `labelling_interface`.
    """
    return json.dumps([_label_studio_task(task) for task in tasks], ensure_ascii=False, indent=1) + "\n"


def _label_studio_task(task: Task) -> dict[str, Any]:
    text = task.doc.text
    regions = [
        {
            "id": f"entity-{number}",
            "from_name": "label",
            "to_name": "text",
            "type": "labels",
            "value": {"start": e.start, "end": e.end, "text": text[e.start : e.end], "labels": [e.label]},
            "score": _rounded(e.probability),
        }
        for number, e in enumerate(task.entities)
    ]
    # Label Studio can sort tasks by this score. It must be between 0 and 1.
    score = {} if task.score is None else {"score": _rounded(task.score)}
    prediction = {"model_version": "tener_ner", **score, "result": regions}
    return {"data": {"text": text, **_metadata(task)}, "predictions": [prediction]}


def labelling_interface(labels: Sequence[str]) -> str:
    """Return Label Studio's labelling interface (an XML configuration) for the given labels."""
    choices = "\n".join(f"    <Label value={quoteattr(label)}/>" for label in labels)
    text = '  <Text name="text" value="$text"/>'
    return f'<View>\n  <Labels name="label" toName="text">\n{choices}\n  </Labels>\n{text}\n</View>\n'


def prodigy(tasks: Sequence[Task]) -> str:
    """Return tasks in the JSONL format of Prodigy's recipe `ner.manual`."""
    return dump_jsonl({**prodigy_record(task), SUGGESTED: True} for task in tasks)


def prodigy_record(task: Task) -> dict[str, Any]:
    """Return a task as a dict in Prodigy's format.

    Prodigy's interface requires tokens and does not support nested entities. The dict therefore contains only outermost
    entities.
    """
    tokens = _tokens(task)
    starts = {token["start"]: token["id"] for token in tokens}
    ends = {token["end"]: token["id"] for token in tokens}
    spans = [
        {
            "start": entity.start,
            "end": entity.end,
            "token_start": starts[entity.start],
            "token_end": ends[entity.end],
            "label": entity.label,
            "score": _rounded(entity.probability),
        }
        for entity in outermost(task.entities)
    ]
    return {"text": task.doc.text, "tokens": tokens, "spans": spans, "meta": _metadata(task)}


def _tokens(task: Task) -> list[dict[str, Any]]:
    """Return the Doc's tokens in Prodigy's format.

    If an entity is not aligned with token boundaries, return the characters as tokens.
    """
    doc, text = task.doc, task.doc.text
    edges = [(token.idx, token.idx + len(token), bool(token.whitespace_)) for token in doc]
    starts, ends = {start for start, _, _ in edges}, {end for _, end, _ in edges}
    if any(entity.start not in starts or entity.end not in ends for entity in task.entities):
        edges = [(start, start + 1, False) for start in range(len(text))]
    return [
        {"text": text[start:end], "start": start, "end": end, "id": number, "ws": space}
        for number, (start, end, space) in enumerate(edges)
    ]


# Formats for the command `suggest --format`.
TOOLS = {
    "doccano": Tool(doccano),
    "labelstudio": Tool(label_studio, labelling_interface),
    "prodigy": Tool(prodigy),
}


def _metadata(task: Task) -> dict[str, Any]:
    # Don't use the key `id`, because annotation tools assign their own ids.
    numbers = {"uncertainty": task.uncertainty, "probability": task.probability}
    metadata = {RECORD_ID: task.record_id, **{name: _rounded(value) for name, value in numbers.items()}}
    return {name: value for name, value in metadata.items() if value is not None}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, DIGITS)
