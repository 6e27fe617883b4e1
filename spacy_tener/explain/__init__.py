"""Explanations of the entities that a pipeline finds.

    explanation = explain(nlp, "王小明去了上海")
    explanation.texts[0].entities[0].alternatives   # entities with other boundaries or another label
    explanation.texts[0].entities[0].attributions   # influence of each character on the entity
    html = explanation.to_html()

`explaining` computes the explanations, and `explanation` has their dataclasses and writes JSON and HTML. Used by the
commands `explain` and `evaluate --explain`, and by the service.
"""

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
