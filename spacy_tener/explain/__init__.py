"""Explain predicted entities by probabilities, alternative entities and token attributions.

    explanation = explain(nlp, "王小明去了上海")
    explanation.texts[0].entities[0].alternatives   # entities with other boundaries or another label
    explanation.texts[0].entities[0].attributions   # each character's influence on the entity
    html = explanation.to_html()

`explaining.py` computes explanations. `explanation.py` contains the dataclasses for the result and converts them to
JSON and HTML. The commands `explain` and `evaluate --explain` and the HTTP service use this package.
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
