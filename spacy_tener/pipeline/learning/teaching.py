"""Distillation: a trained pipeline as a teacher, whose distribution over tag sequences is learned beside the
annotation, or instead of it on texts without any."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import spacy
from numpy.typing import NDArray
from spacy.language import Language

from ...errors import RemedyError
from ...files import digest
from ...models.run import Rows
from ...models.tagger import TaggerModel, crf, on_host
from ...tagging import TagLayout
from ..crf_pipe import CRFPipe, Reading
from ..finding import find_crf_pipe
from ..units import DocView, view_of
from ..windows import DocReader
from .soft_targets import EmissionTarget, Key, PathTarget, SoftTarget, SoftTargetStore

if TYPE_CHECKING:
    from ...layers.crf import CRF

_MB = 1 << 20


class Teacher:
    """A trained pipeline that another `tener_ner` learns from. See `load_teacher`.

    temperature: Divisor of all scores of the teacher's CRF.

    Not a dataclass, which spaCy's validation of `initialize` would turn into a dictionary.
    """

    def __init__(
        self,
        nlp: Language,
        pipe: CRFPipe,
        *,
        share: float,
        temperature: float,
        k_best: int,
        limit: int,
        file: Path | None = None,
    ) -> None:
        self.nlp = nlp
        self.pipe = pipe
        self.share = share
        self.temperature = temperature * pipe.temperature
        self.k_best = k_best
        self.limit = limit
        self.file = file
        self._store: SoftTargetStore | None = None
        self._kept: dict[Key, SoftTarget] = {}
        self._size = 0

    @cached_property
    def crf(self) -> CRF:
        """The teacher's CRF, with its scores divided by the temperature."""
        import torch

        layer = crf(self.pipe.model)
        scaled = layer.resize(layer.layout.n_labels)
        with torch.no_grad():
            for weight in scaled.parameters():
                weight.div_(self.temperature)
        return scaled

    def soft_targets(self, views: Sequence[DocView], labels: Sequence[str]) -> list[SoftTarget]:
        """Return the teacher's distributions over tags of the student's units. Each text is read once.

        labels: The student's labels, the teacher's first.
        """
        keys = [(view.doc.text, view.places().tobytes()) for view in views]
        found = {key: self._kept[key] for key in keys if key in self._kept}
        missing = {key: view for key, view in zip(keys, views, strict=True) if key not in found}
        if missing:
            store = self._open_store(labels)
            found |= store.read(missing) if store else {}
            unread = {key: view for key, view in missing.items() if key not in found}
            if unread:
                made = dict(zip(unread, self._predict(list(unread.values()), labels), strict=True))
                if store:
                    store.write(made)
                found |= made
        for key in missing:
            if self._size + found[key].nbytes <= self.limit:
                self._kept[key] = found[key]
                self._size += found[key].nbytes
        return [found[key] for key in keys]

    def _open_store(self, labels: Sequence[str]) -> SoftTargetStore | None:
        if self._store is None and self.file:
            made_of = [digest(Path(self.nlp.path)), self.pipe.name, self.temperature, self.k_best, *labels]
            layouts = TagLayout(len(self.pipe.labels)), TagLayout(len(labels))
            self._store = SoftTargetStore(self.file, json.dumps(made_of), *layouts)
        return self._store

    def _predict(self, views: Sequence[DocView], labels: Sequence[str]) -> list[SoftTarget]:
        with self.nlp.select_pipes(disable=self.nlp.pipe_names[self.nlp.pipe_names.index(self.pipe.name) :]):
            # Docs, since spaCy raises an error for texts of more than a million characters.
            docs = list(self.nlp.pipe(self.nlp.tokenizer(view.doc.text) for view in views))
        pipe = self.pipe
        own = [view_of(doc, pipe.settings.view) for doc in docs]
        same = [np.array_equal(mine.places(), view.places()) for mine, view in zip(own, views, strict=True)]
        others = [doc for doc, equal in zip(docs, same, strict=True) if not equal]
        readings = iter(pipe.k_best(others, self.k_best))
        model, reader = pipe.model, DocReader.of(pipe.model, pipe.settings)
        groups = reader.groups([view for view, equal in zip(own, same, strict=True) if equal]) if any(same) else []
        scores = iter(row for group in groups for row in _per_view(model, reader.emissions(model, group), group))
        return [
            EmissionTarget(next(scores) / self.temperature)
            if equal
            else _path_target(view, next(readings), labels, self.temperature / pipe.temperature)
            for view, equal in zip(views, same, strict=True)
        ]


def _per_view(model: TaggerModel, emissions: Rows, views: Sequence[DocView]) -> list[NDArray[np.float32]]:
    """Return the emissions of each view on the host."""
    _, rows = on_host(model, emissions)
    return np.split(rows.astype(np.float32), np.cumsum([len(view) for view in views])[:-1])


def load_teacher(
    path: str | Path | None = None,
    component: str = "tener_ner",
    share: float = 0.5,
    temperature: float = 1.0,
    k_best: int = 8,
    cache_mb: int = 1000,
    cache_file: str | Path | None = None,
) -> Teacher:
    """Load a trained pipeline as a teacher of another in training (distillation). The teacher is not saved.

    Registered as `spacy_tener.Teacher.v1`, for `[initialize.components.tener_ner.teacher]`. The student gets the
    teacher's labels. If both split a text into the same units, tokens or characters, the student learns the exact
    distribution over all tag sequences; otherwise that over the teacher's k best. Each text is read once, and cached.

    path (Optional[Union[str, Path]]): The pipeline: a directory, or the name of an installed package.
    component (str): Name of the `tener_ner` in it.
    share (float): The teacher's share of the loss; the rest is the annotation's. Without
        annotation, the loss is the teacher's part alone.
    temperature (float): Divisor of the teacher's scores, beside its calibrated temperature. Above 1, less probable tag
        sequences weigh more.
    k_best (int): Number of best tag sequences that are learned if the units differ.
    cache_mb (int): Maximum memory for cached distributions, in MB; other texts are read again in each epoch.
    cache_file (Optional[Union[str, Path]]): A file that caches the distributions for other trainings with the same
        teacher, such as other seeds, also at the same time. Six labels take some 100 bytes per token.
    """
    for name, value, valid in (
        ("share", share, 0.0 < share <= 1.0),
        ("temperature", temperature, 0.0 < temperature < np.inf),
        ("k_best", k_best, k_best >= 1),
        ("cache_mb", cache_mb, cache_mb >= 0),
    ):
        if not valid:
            wanted = "share must be above 0 and at most 1, temperature above 0, k_best at least 1, cache_mb at least 0"
            raise RemedyError(f"spacy_tener.Teacher.v1: {name} is {value}", f"Correct the config: {wanted}.")
    if not path:
        remedy = "Set `path` in this section of the config to a trained pipeline, such as by --paths.teacher."
        raise RemedyError("spacy_tener.Teacher.v1: path is not set", remedy)
    nlp = spacy.load(path)
    pipe = find_crf_pipe(nlp, component, what=f"spacy_tener.Teacher.v1: the pipeline {path}")
    if not pipe.labels:
        raise RemedyError(f"spacy_tener.Teacher.v1: '{component}' of {path} has no labels", "Use a trained pipeline.")
    return Teacher(
        nlp,
        pipe,
        share=share,
        temperature=temperature,
        k_best=k_best,
        limit=cache_mb * _MB,
        file=Path(cache_file) if cache_file else None,
    )


def _path_target(view: DocView, readings: Sequence[Reading], labels: Sequence[str], temperature: float) -> PathTarget:
    """Return the teacher's k best readings as tags of a view, with weights. Entities that do not align with its units,
    or that start or end in white space, are left out."""
    layout, index, units = TagLayout(len(labels)), {label: i for i, label in enumerate(labels)}, view.units()
    rows = []
    for reading in readings:
        found = []
        for entity in reading.entities:
            place = view.unit_span(entity.start, entity.end)
            if place and entity.label in index and not units.space[[place[0], place[1] - 1]].any():
                found.append((*place, index[entity.label]))
        start, end, label = np.array(sorted(found), dtype=np.int64).reshape(-1, 3).T
        rows.append(layout.encode(start, end, label, len(view)))
    scores = np.array([reading.log_probability for reading in readings]) / temperature
    weights = np.exp(scores - scores.max())
    return PathTarget(np.array(rows), weights / weights.sum(), layout)
