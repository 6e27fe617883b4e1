"""Doubts about gold annotation, for reading: one HTML page, which fetches nothing, and lines of JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from string import Template
from typing import Any

from ...pipeline.entities import FoundEntity
from .review import Doubt, Judged

KINDS = {
    "label": "another label",
    "edges": "other edges",
    "missing": "not in gold",
    "extra": "only in gold",
}
"""What the model reads there, beside gold."""
CONTEXT = 40
"""Characters of the text that are shown on both sides of a place."""
_HUES = (210, 28, 140, 280, 330, 175, 60, 0)

_PAGE = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>$title</title>
<style>
:root { color-scheme: light dark; --line: #8885; --quiet: #777; }
body { font: 16px/1.6 system-ui, "PingFang SC", "Noto Sans CJK SC", sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; }
article { border-top: 1px solid var(--line); padding: .8rem 0; }
article p { margin: .2rem 0; overflow-wrap: anywhere; white-space: pre-wrap; }
.facts, .side { color: var(--quiet); font-size: .85rem; }
.side { display: inline-block; width: 4rem; }
mark { color: inherit; background: hsl(var(--hue) 70% 50% / .3); border-radius: .3em; padding: .1em .3em; }
mark small { margin-left: .4em; font-size: .7em; }
</style>
</head>
<body>
<h1>$title</h1>
<p>$summary</p>
<p>
<label>Show <select id="kind"><option value="">all kinds</option>$options</select></label>
<span id="shown" role="status"></span>
</p>
<main>
$articles
</main>
<script>
const kind = document.getElementById("kind");
function show() {
  const all = [...document.querySelectorAll("article")];
  all.forEach(each => { each.hidden = kind.value !== "" && each.dataset.kind !== kind.value; });
  document.getElementById("shown").textContent = "Places: " + all.filter(each => !each.hidden).length;
}
kind.addEventListener("change", show);
show();
</script>
</body>
</html>
""")


def render(title: str, summary: str, doubts: Sequence[Doubt], docs: Mapping[int, Judged]) -> str:
    """A page with the doubts in their order. summary: plain text on top."""
    labels = sorted({each.label for doubt in doubts for each in (*doubt.gold, *doubt.found)})
    hues = {label: _HUES[number % len(_HUES)] for number, label in enumerate(labels)}
    counts = Counter(doubt.kind for doubt in doubts)
    options = "".join(f'<option value="{kind}">{name} ({counts[kind]})</option>' for kind, name in KINDS.items())
    articles = "\n".join(_article(rank, doubt, docs[doubt.doc], hues) for rank, doubt in enumerate(doubts, start=1))
    return _PAGE.substitute(title=escape(title), summary=escape(summary), options=options, articles=articles)


def _article(rank: int, doubt: Doubt, judged: Judged, hues: Mapping[str, int]) -> str:
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
        name = f"{escape(each.label)} {each.probability:.3f}"
        parts += [
            escape(text[position : each.start]),
            f'<mark style="--hue: {hues[each.label]}">{escape(text[each.start : each.end])}',
            f"<small>{name}</small></mark>",
        ]
        position = each.end
    return "".join([*parts, escape(text[position:end]), "…" if end < len(text) else ""])


def as_json(doubts: Sequence[Doubt], docs: Mapping[int, Judged]) -> str:
    """A line for each doubt, in their order."""
    return "".join(f"{json.dumps(_record(doubt, docs[doubt.doc]), ensure_ascii=False)}\n" for doubt in doubts)


def _record(doubt: Doubt, judged: Judged) -> dict[str, Any]:
    text = judged.doc.text
    sides = {
        side: [{"start": e.start, "end": e.end, "label": e.label, "probability": e.probability} for e in entities]
        for side, entities in (("gold", doubt.gold), ("found", doubt.found))
    }
    place = {"start": doubt.start, "end": doubt.end, "span": text[doubt.start : doubt.end]}
    return {"doc": doubt.doc, "kind": doubt.kind, "suspicion": doubt.suspicion, **place, **sides, "text": text}


def docs_as_json(docs: Sequence[Judged]) -> str:
    """A line for each Doc, the least probable gold reading first."""
    records = (
        {"doc": each.number, "probability": each.probability, "text": each.doc.text}
        for each in sorted(docs, key=lambda each: each.probability)
    )
    return "".join(f"{json.dumps(record, ensure_ascii=False)}\n" for record in records)
