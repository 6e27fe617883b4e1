"""Explanations of entities: `explain(nlp, text)`, as data and as a page."""

from .explaining import explain
from .explanation import Evidence, ExplainedEntity, ExplainedText, Explanation, LexiconWord

__all__ = [
    "Evidence",
    "ExplainedEntity",
    "ExplainedText",
    "Explanation",
    "LexiconWord",
    "explain",
]
