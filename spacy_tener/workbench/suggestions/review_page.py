"""The doubts of a review for people and programs: an HTML page, which fetches nothing, and lines of JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from string import Template

from ...pipeline.entities import FoundEntity
from .review import Doubt, JudgedDoc

KINDS = {
    "label": "another label",
    "edges": "other edges",
    "missing": "not in gold",
    "extra": "only in gold",
}
"""The kinds of doubts, as the model's reading beside gold."""
CONTEXT = 40
"""Characters of the text that are shown on both sides of a place."""
_HUES = (210, 28, 140, 280, 330, 175, 60, 0)


def review_page(title: str, summary: str, doubts: Sequence[Doubt], docs: Mapping[int, JudgedDoc]) -> str:
    """Return a page with the doubts in their order. summary: Plain text on top."""
    labels = sorted({each.label for doubt in doubts for each in (*doubt.gold, *doubt.found)})
    hues = {label: _HUES[number % len(_HUES)] for number, label in enumerate(labels)}
    counts = Counter(doubt.kind for doubt in doubts)
    options = "".join(f'<option value="{kind}">{name} ({counts[kind]})</option>' for kind, name in KINDS.items())
    articles = "\n".join(_article(rank, doubt, docs[doubt.doc], hues) for rank, doubt in enumerate(doubts, start=1))
    template = Template((Path(__file__).parent / "review.html").read_text(encoding="utf8"))
    return template.substitute(title=escape(title), summary=escape(summary), options=options, articles=articles)


def _article(rank: int, doubt: Doubt, judged: JudgedDoc, hues: Mapping[str, int]) -> str:
    facts = f"{rank} · {KINDS[doubt.kind]} · suspicion {doubt.suspicion:.4f} · text {doubt.doc} of the file"
    sides = "\n".join(
        f'<p><span class="side">{name}</span>{_marked(judged.doc.text, doubt, entities, hues)}</p>'
        for name, entities in (("gold", doubt.gold), ("model", doubt.found))
    )
    return f'<article data-kind="{doubt.kind}">\n<p class="facts">{facts}</p>\n{sides}\n</article>'


def _marked(text: str, doubt: Doubt, entities: Sequence[FoundEntity], hues: Mapping[str, int]) -> str:
    position, end = max(0, doubt.start - CONTEXT), min(len(text), doubt.end + CONTEXT)
    parts = ["…" if position else ""]
    for each in sorted(entities, key=lambda entity: entity.start):
        parts += [
            escape(text[position : each.start]),
            f'<mark style="--hue: {hues[each.label]}">{escape(text[each.start : each.end])}',
            f"<small>{escape(each.label)} {each.probability:.3f}</small></mark>",
        ]
        position = each.end
    return "".join([*parts, escape(text[position:end]), "…" if end < len(text) else ""])


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
        lines.append(f"{json.dumps(record, ensure_ascii=False)}\n")
    return "".join(lines)


def docs_jsonl(docs: Sequence[JudgedDoc]) -> str:
    """Return a line of JSON for each Doc, the least probable gold annotation first."""
    records = (
        {"doc": each.number, "probability": each.probability, "text": each.doc.text}
        for each in sorted(docs, key=lambda each: each.probability)
    )
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
