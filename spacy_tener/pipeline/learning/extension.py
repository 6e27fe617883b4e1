"""More labels for a trained component, which learns them without forgetting its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from spacy.language import Language

from ...errors import RemedyError
from ...nn.requirements import add_requirements
from ...validation import Count, validated
from ..entity_lists import EntityLists
from .teaching import load_teacher


@validated("spacy_tener.Extension.v1")
def extension(
    labels: Sequence[str],
    path: str | Path | None = None,
    component: str = "tener_ner",
    rename: Mapping[str, str] | None = None,
    cache_mb: Count = 1000,
) -> Callable[[Language], Language]:
    """Add labels to a sourced `tener_ner`, and let its earlier self teach the labels that a text is not annotated for.

    Registered as `spacy_tener.Extension.v1`, for `[initialize.after_init]`; `spacy tener extend` writes the config. A
    text says which labels it is annotated for in `doc.user_data["spacy_tener.labels"]`.

    labels (Sequence[str]): The labels to add.
    path (Optional[Union[str, Path]]): The trained pipeline, which is the teacher.
    component (str): Name of the `tener_ner`, in both pipelines.
    rename (Optional[Mapping[str, str]]): Other names of labels that it has.
    cache_mb (int): Maximum memory for the teacher's cached distributions, in MB.
    """
    return partial(_extend, labels=labels, path=path, component=component, rename=rename or {}, cache_mb=cache_mb)


def _extend(nlp: Language, *, component: str, labels: Sequence[str], path: Any, rename: Any, cache_mb: int) -> Language:
    if component not in nlp.component_names:  # what is sourced is disabled at that time
        raise RemedyError(f"spacy_tener.Extension.v1: there is no '{component}'", "Set `component` to a tener_ner.")
    pipe: Any = nlp.get_pipe(component)
    pipe.extend(labels, load_teacher(path, component, cache_mb=cache_mb, completes=True), rename)
    for _, lists in nlp.components:
        if isinstance(lists, EntityLists):
            lists.rename(rename)
    add_requirements(nlp)
    return nlp
