"""Why a pipeline found its entities: `explain(nlp, text)`, as data and as a page."""

from .explaining import explain
from .explanation import Evidence, ExplainedEntity, ExplainedText, Explanation, Passage

__all__ = ["Evidence", "ExplainedEntity", "ExplainedText", "Explanation", "Passage", "explain"]
