"""Distillation: a trained pipeline as a teacher, whose distribution over tag sequences is learned beside the
annotation, or instead of it on texts without any."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import spacy
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveFloat
from spacy.language import Language

from ...architectures.tagger import TaggerModel, crf, on_host
from ...errors import RemedyError
from ...features.cache import FeatureCache, key_of
from ...processes import cached_property
from ...validation import Fraction, validated
from ..settings import NERSettings
from ..units import DocView, view_of
from ..windows import WindowBatcher

if TYPE_CHECKING:
    from ...crf.crf_torch import CRF

_MIB = 1 << 20

SoftTarget = NDArray[np.float32]
"""The teacher's emissions of the student's units. *Shape:* (units, tags of the teacher)"""


class Teacher:
    """A trained pipeline that another `tener_ner` learns from. See `load_teacher`.

    component (str): Name of the `tener_ner` in it.
    share (float): The teacher's share of the loss.
    temperature (float): Divisor of all scores of the teacher's CRF, beside its calibrated temperature.
    limit (int): Maximum memory for cached distributions, in bytes.
    completes (bool): It teaches only what a text is not annotated for, under its annotation.

    Not a dataclass, which spaCy's validation of `initialize` would turn into a dictionary.
    """

    def __init__(
        self, nlp: Language, component: str, *, share: float, temperature: float, limit: int, completes: bool = False
    ) -> None:
        pipe: Any = nlp.get_pipe(component)
        self.nlp = nlp
        self.component = component
        self.model: TaggerModel = pipe.model
        self.settings: NERSettings = pipe.settings
        self.labels: tuple[str, ...] = pipe.labels
        self.share = share
        self.completes = completes
        self.temperature = temperature * pipe.temperature
        self._cache = FeatureCache(limit)

    @cached_property
    def crf(self) -> CRF:
        """The teacher's CRF, with its scores divided by the temperature."""
        import torch

        layer = crf(self.model)
        scaled = layer.resize(layer.layout.n_labels)
        with torch.no_grad():
            for weight in scaled.parameters():
                weight.div_(self.temperature)
        return scaled

    def soft_targets(self, views: Sequence[DocView]) -> list[SoftTarget]:
        """Return the teacher's distributions over tags of the student's units. Each text is read once."""
        keys = [key_of(view.doc) for view in views]
        return list(self._cache(keys, views, self._predict, training=True))

    def _predict(self, views: Sequence[DocView]) -> list[SoftTarget]:
        later = self.nlp.pipe_names[self.nlp.pipe_names.index(self.component) :]
        # Docs, since spaCy raises an error for texts of more than a million characters.
        docs = self.nlp.pipe((self.nlp.tokenizer(view.doc.text) for view in views), disable=later)
        teacher_views = [view_of(doc, self.settings.view) for doc in docs]
        for teacher_view, view in zip(teacher_views, views, strict=True):
            if not np.array_equal(teacher_view.char_extents(), view.char_extents()):
                raise RemedyError(
                    f"spacy_tener.Teacher.v1: the teacher splits a text into other units: {view.doc.text[:60]!r}",
                    "Give teacher and student the same tokenizer, or view = 'characters' to both.",
                )
        batcher, soft_targets = WindowBatcher.of(self.model, self.settings, training=True), list[SoftTarget]()
        for group in batcher.groups(teacher_views):
            _, rows = on_host(self.model, batcher.emissions(self.model, group))
            ends = np.cumsum([len(doc.view) for doc in group])
            soft_targets += np.split(rows.astype(np.float32) / self.temperature, ends[:-1])
        return soft_targets


@validated("spacy_tener.Teacher.v1")
def load_teacher(
    path: str | Path | None = None,
    component: str = "tener_ner",
    share: Fraction = 0.5,
    temperature: PositiveFloat = 1.0,
    cache_mb: NonNegativeInt = 1000,
    completes: bool = False,
) -> Teacher:
    """Load a trained pipeline as a teacher of another in training (distillation). The teacher is not saved.

    Registered as `spacy_tener.Teacher.v1`, for `[initialize.components.tener_ner.teacher]`. The student gets the
    teacher's labels, and learns the exact distribution over all tag sequences. Both must split texts into the same
    units, tokens or characters. Each text is read once, and cached.

    path (Optional[Union[str, Path]]): The pipeline: a directory, or the name of an installed package.
    component (str): Name of the `tener_ner` in it.
    share (float): The teacher's share of the loss; the rest is the annotation's. Without
        annotation, the loss is the teacher's part alone.
    temperature (float): Divisor of the teacher's scores, beside its calibrated temperature. Above 1, less probable tag
        sequences weigh more.
    cache_mb (int): Maximum memory for cached distributions, in MB; other texts are read again in each epoch.
    completes (bool): Teach only labels that a text is not annotated for (`doc.user_data["spacy_tener.labels"]`), by the
        distribution under its annotation. Then `share` is not used.
    """
    if not path:
        remedy = "Set `path` in this section of the config to a trained pipeline, such as by --paths.teacher."
        raise RemedyError("spacy_tener.Teacher.v1: path is not set", remedy)
    nlp = spacy.load(path)
    names = [name for name in nlp.pipe_names if nlp.get_pipe_meta(name).factory == "tener_ner"]
    if component not in names:
        remedy = f"Set `component` to {' or '.join(names)}." if names else "Use a pipeline trained with one."
        raise RemedyError(f"spacy_tener.Teacher.v1: {path} has no tener_ner named '{component}'", remedy)
    limit = cache_mb * _MIB
    teacher = Teacher(nlp, component, share=share, temperature=temperature, limit=limit, completes=completes)
    if not teacher.labels:
        raise RemedyError(f"spacy_tener.Teacher.v1: '{component}' of {path} has no labels", "Use a trained pipeline.")
    return teacher
