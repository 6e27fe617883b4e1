"""Trained pipelines with a transformer, converted to run without torch, and what they find beside the old ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spacy.language import Language
from thinc.api import Model

from ..errors import RemedyError
from ..models.requirements import TRANSFORMER
from ..pipeline.doc_entities import found_entities
from ..pipeline.requirements import add_requirements

if TYPE_CHECKING:
    from ..models.transformer.export import Precision

_SHARED = "transformer", "curated_transformer"
"""Factories of components whose transformer others share."""


def to_onnx(nlp: Language, precision: Precision) -> list[str]:
    """Let ONNX Runtime compute all of a pipeline's transformers, in place, of disabled components too. Returns the
    exporting packages whose versions are not tested."""
    if shared := [name for name in nlp.component_names if nlp.get_pipe_meta(name).factory in _SHARED]:
        raise RemedyError(
            f"The transformer of '{shared[0]}', which components share, cannot be converted",
            "Train with the overlay transformer or transformer-frozen instead of transformer-shared.",
        )
    pipes: dict[str, Any] = {
        name: pipe for name, pipe in nlp.components if isinstance(getattr(pipe, "model", None), Model)
    }
    found = [(pipe, node) for pipe in pipes.values() for node in pipe.model.walk() if node.name == "transformer_embed"]
    if not found:
        raise RemedyError("The pipeline has no transformer", "There is nothing to convert: it needs no torch.")
    from ..models.transformer.export import other_versions, to_onnx_embed

    untested = other_versions()
    for pipe, node in found:
        embed = to_onnx_embed(node, precision)
        pipe.model.replace_node(node, embed)
        pipe.model = embed if pipe.model is node else pipe.model
    for name in pipes:
        config = nlp.get_pipe_config(name)
        config["model"] = _converted(config["model"])
    nlp.meta["requirements"] = [
        requirement for requirement in nlp.meta.get("requirements", []) if requirement not in TRANSFORMER
    ]
    add_requirements(nlp)
    return untested


def _converted(section: Any) -> Any:
    """Return a section of a config with each embedder of a transformer replaced."""
    from ..models.transformer.export import to_onnx_section

    if not isinstance(section, Mapping):
        return section
    if section.get("@architectures") == "spacy_tener.TransformerEmbed.v1":
        return to_onnx_section(section)
    return {name: _converted(part) for name, part in section.items()}


def changed_entities(old: Language, new: Language, texts: Sequence[str]) -> tuple[int, list[tuple[str, str, str]]]:
    """Return how many entities of texts two pipelines both find, and the others: which one finds it, label, text."""
    same, changed = 0, []
    found = (found_entities(nlp, nlp.pipe(map(nlp.tokenizer, texts))) for nlp in (old, new))
    for text, *sides in zip(texts, *found, strict=True):
        before, after = ({(entity.start, entity.end, entity.label) for entity in side} for side in sides)
        same += len(before & after)
        for start, end, label in sorted(before ^ after):
            changed.append(("old" if (start, end, label) in before else "new", label, text[start:end]))
    return same, changed
