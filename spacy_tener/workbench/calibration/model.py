"""Calibrating a pipeline: which texts it can be done by, and how the result is kept in the model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from spacy.language import Language
from spacy.training import Example

from ...errors import RemedyError
from ...files import write_text
from ...pipeline.finding import find_recogniser
from ..pipelines import check_new, write_pipeline
from .outcomes import Outcomes, find_outcomes

FEWEST = 10
"""So many of the entities found must be right, and as many wrong."""


def judged(nlp: Language, name: str, examples: Sequence[Example], source: Path) -> Outcomes:
    """What the component finds in annotated texts, and whether that is right."""
    labels = {span.label_ for example in examples for span in example.reference.ents}
    if not labels:
        raise RemedyError(f"{source}: no entities are annotated", "Name texts whose entities are.")
    known = find_recogniser(nlp, name).labels
    if not labels & set(known):
        raise RemedyError(
            f"{source}: its labels ({', '.join(sorted(labels))}) are not those of '{name}' ({', '.join(known)})",
            "Name texts annotated as those that the pipeline was trained on.",
        )
    return find_outcomes(nlp, name, examples)


def check_enough(outcomes: Outcomes, source: Path) -> None:
    right = int(outcomes.right.sum())
    wrong = outcomes.right.size - right
    if min(right, wrong) < FEWEST:
        raise RemedyError(
            f"{source}: {right + wrong} entities are found, {right} right and {wrong} wrong: too few to fit by",
            f"Name more texts: {FEWEST} entities of either kind are the least.",
        )


def store(nlp: Language, name: str, changes: dict[str, Any], output: Path | None) -> Path:
    """Change a component's `cfg` in the pipeline's own directory, or write the pipeline to a new one. Either is done
    as a whole or not at all."""
    find_recogniser(nlp, name).cfg.update(changes)
    if output is None:
        path = nlp.path / name / "cfg"
        cfg = {**json.loads(path.read_text(encoding="utf8")), **changes}
        write_text(path, json.dumps(cfg, indent=2, ensure_ascii=False))
        return Path(nlp.path)
    write_pipeline(nlp, output)
    return output


def check_place(model: str, output: Path | None) -> None:
    """Refuse a place that cannot be written before anything is computed."""
    if output is None and not Path(model).is_dir():
        raise RemedyError(
            f"'{model}' is an installed package", "Name a directory for the calibrated pipeline by --output."
        )
    if output is not None:
        check_new(output)
