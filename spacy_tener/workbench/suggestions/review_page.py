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

from ...annotate.encoding import dump_jsonl, encodable
from ...pages import make_page
from ...pipeline.entities import FoundEntity, offsets_of
from ...pipeline.nesting import outermost
from .review import Doubt, JudgedDoc
from .tasks import RECORD_ID, Task


def review_page(
    doubts: Sequence[Doubt], docs: Mapping[int, JudgedDoc], *, corpus: str, numbered: Sequence[str] = ()
) -> str:
    """Return a page with the texts of some doubts, in the order of their most suspicious ones.

    doubts (Sequence[Doubt]): The doubts by suspicion.
    docs (Mapping[int, JudgedDoc]): All Docs of the corpus by their number.
    corpus (str): The name of the corpus' file.
    numbered (Sequence[str]): All labels of the pipeline in the order of their numbers, by which they have colours.
    """
    most_suspicious = {doubt.doc: doubt for doubt in reversed(doubts)}
    numbers = dict.fromkeys(doubt.doc for doubt in doubts)
    texts = [_text(number, docs[number].doc, _questions(docs[number])) for number in numbers]
    for text in texts:
        starts = [doubt.start for doubt in docs[text["doc"]].doubts]
        text["first"] = starts.index(most_suspicious[text["doc"]].start)
    labels = {ent.label_ for judged in docs.values() for ent in judged.doc.ents}
    labels |= {entity.label for doubt in doubts for entity in doubt.found}
    apply = f"python -m spacy tener review --apply decisions.json {shlex.quote(corpus)} --output mended.spacy"
    doubtful = sum(bool(judged.doubts) for judged in docs.values())
    values = {"corpus": corpus, "shown": f"{len(texts):,}", "doubtful": f"{doubtful:,}"}
    about = "{shown} of {doubtful} texts with doubts, the most suspicious first"
    heading = {"title": "Review of {corpus}", "about": about, "values": values}
    in_order = [*numbered, *sorted(labels.difference(numbered))]
    return _page(heading, texts, in_order, {"stands": "gold", "corpus": corpus, "next": apply}, lang="")


def annotation_page(
    tasks: Sequence[Task],
    labels: Iterable[str],
    *,
    model: str,
    inputs: str,
    numbered: Sequence[str] = (),
    lang: str = "en",
) -> str:
    """Return a page with texts to annotate and the model's entities in them.

    tasks (Sequence[Task]): The texts. The page has their outermost entities.
    labels (Iterable[str]): In the order of number keys.
    model, inputs (str): By what and from what the texts were chosen.
    numbered (Sequence[str]): All labels of the pipeline in the order of their numbers, by which they have colours.
    lang (str): The language of the texts.
    """
    texts = [
        _text(number, task.doc, [((), [entity]) for entity in outermost(task.entities)], task.record_id)
        for number, task in enumerate(tasks)
    ]
    convert = "python -m spacy tener convert decisions.json --output annotated.spacy"
    values = {"model": model, "inputs": inputs}
    heading = {"title": "Texts to annotate", "about": "Chosen by {model} from {inputs}", "values": values}
    content = {"numbered": [*numbered], "stands": "found", "corpus": "", "next": convert}
    return _page(heading, texts, list(labels), content, lang=lang)


def _page(
    heading: Mapping[str, Any], texts: list[dict[str, Any]], labels: list[str], content: Mapping[str, Any], *, lang: str
) -> str:
    # The browser stores decisions under this digest of texts and questions.
    digest = hashlib.blake2b(json.dumps(texts).encode("ascii"), digest_size=16).hexdigest()
    data = {"texts": texts, "labels": labels, "digest": digest, **content}
    return make_page(__package__, "review", data, lang=lang, **heading)


Question = tuple[Sequence[FoundEntity], Sequence[FoundEntity]]
"""The entities at one position of a text: those of the annotation, and those that the model found."""


def _questions(judged: JudgedDoc) -> list[Question]:
    """Return the doubts about a text, and its other entities, on which both sides agree or the model has no say."""
    doubted = {(entity.start, entity.end, entity.label) for doubt in judged.doubts for entity in doubt.gold}
    settled = [FoundEntity(*offsets_of(ent), None) for ent in judged.doc.ents if offsets_of(ent) not in doubted]
    return [*((doubt.gold, doubt.found) for doubt in judged.doubts), *(([entity], [entity]) for entity in settled)]


def _text(number: int, doc: Doc, questions: Sequence[Question], record_id: Any = None) -> dict[str, Any]:
    """Return the data of a text. Without `tokens`, entities may begin and end at any character."""
    tokens = [(token.idx, token.idx + len(token)) for token in doc]
    edges = {edge for token in tokens for edge in token}
    entities = [entity for sides in questions for side in sides for entity in side]
    is_free = len(tokens) == len(doc.text) or any(not {entity.start, entity.end} <= edges for entity in entities)
    return {
        "doc": number,
        **({} if record_id is None else {RECORD_ID: encodable(record_id)}),
        "text": doc.text,
        "tokens": None if is_free else tokens,
        "questions": [[[_plain(entity) for entity in side] for side in sides] for sides in questions],
    }


def _plain(entity: FoundEntity) -> tuple[int, int, str, float | None]:
    probability = None if entity.probability is None else float(f"{entity.probability:.5f}")
    return entity.start, entity.end, entity.label, probability


def doubts_jsonl(doubts: Sequence[Doubt], docs: Mapping[int, JudgedDoc]) -> str:
    """Return a line of JSON for each doubt, in their order."""
    return dump_jsonl(_record(doubt, docs[doubt.doc].doc.text) for doubt in doubts)


def _record(doubt: Doubt, text: str) -> dict[str, Any]:
    return {
        "doc": doubt.doc,
        "kind": doubt.kind,
        "suspicion": doubt.suspicion,
        "start": doubt.start,
        "end": doubt.end,
        "span": text[doubt.start : doubt.end],
        "gold": [asdict(entity) for entity in doubt.gold],
        "found": [asdict(entity) for entity in doubt.found],
        "text": text,
    }


def docs_jsonl(docs: Sequence[JudgedDoc]) -> str:
    """Return a line of JSON for each Doc, the least probable gold annotation first."""
    return dump_jsonl(
        {"doc": judged.number, "probability": judged.probability, "text": judged.doc.text}
        for judged in sorted(docs, key=lambda judged: judged.probability)
    )
