"""Knowledge distillation for `tener_ner`: a trained pipeline is the teacher of the component in training.

The student learns the teacher's probability distribution over tag sequences. Texts can also have gold annotation, which
is then used as well. `learn_torch.py` computes the losses from the teacher's emissions (`SoftTarget`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import spacy
from numpy.typing import NDArray
from pydantic import NonNegativeInt, PositiveFloat
from spacy.language import Language

from ...architectures.tagger import TaggerModel, copy_for_decoding, torch_crf
from ...errors import UserError
from ...features.cache import FeatureCache, cache_key
from ...processes import cached_property
from ...validation import Fraction, validated
from ..settings import NERSettings
from ..units import DocView, view_of
from ..windows import WindowBatcher

if TYPE_CHECKING:
    from ...crf.crf_torch import CRF

_MIB = 1 << 20

# The teacher's emissions for a single text, divided by the temperature. *Shape:* (units, teacher's tags)
SoftTarget = NDArray[np.float32]


class Teacher:
    """The teacher for knowledge distillation: a `tener_ner` in a trained pipeline. See `load_teacher`.

    This class must not be a dataclass: spaCy's validation of `initialize` would convert the object to a dictionary.

    component (str): Name of the `tener_ner` in the teacher's pipeline.
    weight (float): Weight of the distillation loss. The loss for the gold annotation has the weight `1 - weight`.
    temperature (float): Divisor of all scores in the teacher's CRF, in addition to its calibrated temperature.
    limit (int): Maximum memory for cached soft targets, in bytes.
    only_missing_labels (bool): Whether to use the teacher only for labels that a text is not annotated for.
    """

    def __init__(
        self,
        nlp: Language,
        component: str,
        *,
        weight: float,
        temperature: float,
        limit: int,
        only_missing_labels: bool = False,
    ) -> None:
        pipe: Any = nlp.get_pipe(component)
        self.nlp = nlp
        self.component = component
        self.model: TaggerModel = pipe.model
        self.settings: NERSettings = pipe.settings
        self.labels: tuple[str, ...] = pipe.labels
        self.weight = weight
        self.only_missing_labels = only_missing_labels
        self.temperature = temperature * pipe.temperature
        self._cache = FeatureCache(limit)

    @cached_property
    def crf(self) -> CRF:
        """A copy of the teacher's CRF, with all weights divided by the temperature."""
        import torch

        layer = torch_crf(self.model)
        # With the same number of labels, this is a copy.
        scaled = layer.with_labels(layer.layout.n_labels)
        with torch.no_grad():
            for weight in scaled.parameters():
                weight.div_(self.temperature)
        return scaled

    def soft_targets(self, views: Sequence[DocView]) -> list[SoftTarget]:
        """Return the teacher's emissions for the student's Docs. The emissions are cached, up to the memory limit.

        views (Sequence[DocView]): The student's Docs, as sequences of tokens or characters.
        RETURNS (list[SoftTarget]): The emissions for each Doc. *Shape:* (units, teacher's tags)
        """
        keys = [cache_key(view.doc) for view in views]
        return list(self._cache(keys, views, self._predict, training=True))

    def _predict(self, views: Sequence[DocView]) -> list[SoftTarget]:
        later = self.nlp.pipe_names[self.nlp.pipe_names.index(self.component) :]
        # Call the tokenizer directly, because `nlp.pipe` raises an error for texts with more than a million characters.
        docs = self.nlp.pipe((self.nlp.tokenizer(view.doc.text) for view in views), disable=later)
        teacher_views = [view_of(doc, self.settings.view) for doc in docs]
        for teacher_view, view in zip(teacher_views, views, strict=True):
            if not np.array_equal(teacher_view.char_extents(), view.char_extents()):
                raise UserError(
                    f"spacy_tener.Teacher.v1: teacher and student tokenize a text differently: {view.doc.text[:60]!r}",
                    "Use the same tokenizer for both pipelines, or set view = 'characters' in both.",
                )
        batcher, soft_targets = WindowBatcher.of(self.model, self.settings, training=True), list[SoftTarget]()
        for group in batcher.groups(teacher_views):
            _, rows = copy_for_decoding(self.model, batcher.emissions(self.model, group))
            ends = np.cumsum([len(doc.view) for doc in group])
            soft_targets += np.split(rows.astype(np.float32) / self.temperature, ends[:-1])
        return soft_targets


@validated("spacy_tener.Teacher.v1")
def load_teacher(
    path: str | Path | None = None,
    component: str = "tener_ner",
    weight: Fraction = 0.5,
    temperature: PositiveFloat = 1.0,
    cache_mb: NonNegativeInt = 1000,
    only_missing_labels: bool = False,
) -> Teacher:
    """Load a trained pipeline as the teacher for knowledge distillation.

    Registered as `spacy_tener.Teacher.v1`, for `[initialize.components.tener_ner.teacher]`. The student gets the
    teacher's labels and learns the teacher's exact distribution over tag sequences. Teacher and student must use the
    same tokenizer, or both must have `view = "characters"`. The teacher is not saved with the student.

    path (Optional[Union[str, Path]]): The teacher's pipeline: a directory, or the name of an installed package.
    component (str): Name of the `tener_ner` in the teacher's pipeline.
    weight (float): Weight of the distillation loss. The loss for the gold annotation has the weight `1 - weight`. Texts
        without annotation only have the distillation loss.
    temperature (float): Divisor of the teacher's scores, in addition to its calibrated temperature. Values above 1
        flatten the teacher's distribution.
    cache_mb (int): Maximum memory for cached soft targets, in MB. If the cache is full, the teacher processes the
        remaining texts in each epoch.
    only_missing_labels (bool): Whether to use the teacher only for labels that a text is not annotated for. The
        teacher's distribution is then conditioned on the annotation, and `weight` is ignored. The annotated labels are
        in `doc.user_data["spacy_tener.labels"]`.
    """
    if not path:
        fix = "Set `path` in this section of the config to a trained pipeline, for example with --paths.teacher."
        raise UserError("spacy_tener.Teacher.v1: path is not set", fix)
    nlp = spacy.load(path)
    names = [name for name in nlp.pipe_names if nlp.get_pipe_meta(name).factory == "tener_ner"]
    if component not in names:
        fix = f"Set `component` to {' or '.join(names)}." if names else "Use a pipeline with a trained tener_ner."
        raise UserError(f"spacy_tener.Teacher.v1: {path} has no tener_ner named '{component}'", fix)
    limit = cache_mb * _MIB
    teacher = Teacher(
        nlp, component, weight=weight, temperature=temperature, limit=limit, only_missing_labels=only_missing_labels
    )
    if not teacher.labels:
        raise UserError(f"spacy_tener.Teacher.v1: '{component}' of {path} has no labels", "Use a trained pipeline.")
    return teacher
