"""Requirements of all components of a pipeline, when it is initialized."""

from __future__ import annotations

from collections.abc import Callable

from spacy.language import Language
from thinc.api import Model

from ..nn.requirements import update_meta


def add_requirements(nlp: Language) -> None:
    """Add what all components need to meta.json."""
    components = [pipe for _, pipe in nlp.components]
    nlp.meta.pop("encoders", None)  # those of an earlier initialization
    models = [model for pipe in components if isinstance(model := getattr(pipe, "model", None), Model)]
    update_meta(nlp.meta, nlp.config, [*components, *(layer for model in models for layer in model.walk())])


def requirements() -> Callable[[Language], None]:
    """Write what the pipeline needs to meta.json, where another component than `tener_ner` has this package's encoders.

    Registered as `spacy_tener.Requirements.v1`, for `[initialize.after_init]`.
    """
    return add_requirements
