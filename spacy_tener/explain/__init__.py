"""Explanations of entities: `explain(nlp, text)`, as data and as a page."""

from .explaining import explain
from .explanation import Attribution, ExplainedEntity, ExplainedText, Explanation, LexiconWord

__all__ = [
    "Attribution",
    "ExplainedEntity",
    "ExplainedText",
    "Explanation",
    "LexiconWord",
    "explain",
]
