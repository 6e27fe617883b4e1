"""Pages to review or annotate texts, which need no network, and the same data as JSONL.

A page shows the doubts of a review, or a model's entities in texts that are not annotated yet. It saves decisions to a
file, which `decisions` applies to the corpus, and which `tener convert` reads.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from spacy.tokens import Doc

from ...annotate.encoding import dump_json, encodable
from ...pages import make_page
from ...pipeline.entities import FoundEntity, offsets_of
from .review import Doubt, JudgedDoc
from .tasks import RECORD_ID, Task


def review_page(title: str, about: str, doubts: Sequence[Doubt], docs: Mapping[int, JudgedDoc], *, corpus: str) -> str:
    """Return a page with the texts of some doubts, in their order.

    about: The line below the title.
    corpus: The name of the corpus' file.
    """
    numbers = dict.fromkeys(doubt.doc for doubt in doubts)
    texts = [_text(number, docs[number].doc, _questions(docs[number])) for number in numbers]
    labels = {ent.label_ for judged in docs.values() for ent in judged.doc.ents}
    labels |= {each.label for doubt in doubts for each in doubt.found}
    apply = f"python -m spacy tener review --apply decisions.json {shlex.quote(corpus)} --output mended.spacy"
    return _page(title, about, texts, sorted(labels), stands="gold", corpus=corpus, next=apply, lang="")


def annotation_page(title: str, about: str, tasks: Sequence[Task], labels: Iterable[str], *, lang: str = "en") -> str:
    """Return a page with texts to annotate and the model's entities in them. labels: In the order of number keys."""
    texts = [
        _text(number, task.doc, [((), [entity]) for entity in task.entities], task.record_id)
        for number, task in enumerate(tasks)
    ]
    convert = "python -m spacy tener convert decisions.json --output annotated.spacy"
    return _page(title, about, texts, list(labels), stands="found", corpus="", next=convert, lang=lang)


def _page(title: str, about: str, texts: list[dict[str, Any]], labels: list[str], *, lang: str, **others: str) -> str:
    # The browser stores decisions under this digest of texts and questions.
    digest = hashlib.blake2b(json.dumps(texts).encode("ascii"), digest_size=16).hexdigest()
    data = {"texts": texts, "labels": labels, "digest": digest, **others}
    return make_page(__package__, "review", data, title=title, about=about, lang=lang)


Question = tuple[Sequence[FoundEntity], Sequence[FoundEntity]]
"""The entities at one position of a text: those of the annotation, and those that the model found."""


def _questions(judged: JudgedDoc) -> list[Question]:
    """Return the doubts about a text, and its other entities, on which both sides agree or the model has no say."""
    doubted = {(each.start, each.end, each.label) for doubt in judged.doubts for each in doubt.gold}
    others = [FoundEntity(*offsets_of(ent), None) for ent in judged.doc.ents if offsets_of(ent) not in doubted]
    return [*((doubt.gold, doubt.found) for doubt in judged.doubts), *(([each], [each]) for each in others)]


def _text(number: int, doc: Doc, questions: Sequence[Question], record_id: Any = None) -> dict[str, Any]:
    """Return the data of a text. Without `tokens`, entities may begin and end at any character."""
    tokens = [(token.idx, token.idx + len(token)) for token in doc]
    edges = {edge for token in tokens for edge in token}
    entities = [each for sides in questions for side in sides for each in side]
    free = len(tokens) == len(doc.text) or any(not {each.start, each.end} <= edges for each in entities)
    return {
        "doc": number,
        **({} if record_id is None else {RECORD_ID: encodable(record_id)}),
        "text": doc.text,
        "tokens": None if free else tokens,
        "questions": [[[_plain(each) for each in side] for side in sides] for sides in questions],
    }


def _plain(each: FoundEntity) -> tuple[int, int, str, float | None]:
    probability = None if each.probability is None else float(f"{each.probability:.5f}")
    return each.start, each.end, each.label, probability


def doubts_jsonl(doubts: Sequence[Doubt], docs: Mapping[int, JudgedDoc]) -> str:
    """Return a line of JSON for each doubt, in their order."""
    lines = []
    for doubt in doubts:
        text = docs[doubt.doc].doc.text
        record = {
            "doc": doubt.doc,
            "kind": doubt.kind,
            "suspicion": doubt.suspicion,
            "start": doubt.start,
            "end": doubt.end,
            "span": text[doubt.start : doubt.end],
            "gold": [asdict(each) for each in doubt.gold],
            "found": [asdict(each) for each in doubt.found],
            "text": text,
        }
        lines.append(f"{dump_json(record)}\n")
    return "".join(lines)


def docs_jsonl(docs: Sequence[JudgedDoc]) -> str:
    """Return a line of JSON for each Doc, the least probable gold annotation first."""
    records = (
        {"doc": each.number, "probability": each.probability, "text": each.doc.text}
        for each in sorted(docs, key=lambda each: each.probability)
    )
    return "".join(f"{dump_json(record)}\n" for record in records)
