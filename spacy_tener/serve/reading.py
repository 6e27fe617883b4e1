"""What the service adds to what a pipeline finds: explanations, and offsets as JavaScript counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate

from spacy.language import Language

from ..annotate.batches import Task
from ..explain import Explanation, explain
from ..pipeline.finding import recognisers


def explanation_tasks(nlp: Language) -> dict[str, Task]:
    """Explain texts, by the form that is wanted; nothing where the pipeline cannot be explained."""
    if not recognisers(nlp):
        return {}
    return {
        "json": partial(_explained, nlp, Explanation.to_json),
        "html": partial(_explained, nlp, Explanation.to_html),
    }


def _explained(nlp: Language, write: Callable[[Explanation], str], texts: Sequence[str]) -> list[str]:
    with nlp.memory_zone():
        return [write(explain(nlp, text)) for text in texts]


def utf16_offsets(text: str) -> list[int] | None:
    """Where each character begins in UTF-16, and where the last one ends; None where characters have one unit each."""
    if text.isascii() or max(text) <= "\uffff":
        return None
    return list(accumulate((1 + (char > "\uffff") for char in text), initial=0))
