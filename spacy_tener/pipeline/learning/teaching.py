"""A trained pipeline as a teacher: what it thinks of a text, all readings with their probabilities, is learned beside
the annotation, or instead of it where there is none."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import spacy
from spacy.language import Language

from ...errors import RemedyError
from ...files import digest
from ...models.tagger import crf
from ...tagging import TagLayout
from ...types import IntArray
from ..confidence import ConfidentPipe, Parse
from ..finding import find_recogniser
from ..units import DocView, Units, view_of
from ..windows import DocReader
from .lessons import Emissions, Key, Lesson, LessonStore, Paths

if TYPE_CHECKING:
    from ...layers.crf import CRF

_MB = 1 << 20


class Teacher:
    """A pipeline with `tener_ner` in it, and how another `tener_ner` learns from it. See `load_teacher`.

    Not a dataclass, which spaCy's validation of `initialize` would turn into a dictionary.
    """

    def __init__(
        self,
        nlp: Language,
        pipe: ConfidentPipe,
        *,
        share: float,
        temperature: float,
        readings: int,
        limit: int,
        file: Path | None = None,
    ) -> None:
        self.nlp = nlp
        self.pipe = pipe
        self.share = share
        self.temperature = temperature
        self.readings = readings
        self.limit = limit
        self.file = file
        self._store: LessonStore | None = None
        self._kept: dict[Key, Lesson] = {}
        self._size = 0

    @cached_property
    def crf(self) -> CRF:
        """The CRF at the teacher's temperature."""
        import torch

        layer = crf(self.pipe.model)
        cooled = layer.resize(layer.layout.n_labels)
        with torch.no_grad():
            for weight in cooled.parameters():
                weight.div_(self.temperature)
        return cooled

    def lessons(self, views: Sequence[DocView], labels: Sequence[str]) -> list[Lesson]:
        """What the teacher thinks of some Docs, over the student's units. Asked once for each text.

        labels: the student's, those of the teacher first.
        """
        keys = [(view.doc.text, view.places().tobytes()) for view in views]
        missing = {key: view for key, view in zip(keys, views, strict=True) if key not in self._kept}
        made = self._look_up(missing, labels) if missing else {}
        found = [self._kept[key] if key in self._kept else made[key] for key in keys]
        for key, lesson in made.items():
            if self._size + lesson.nbytes <= self.limit:
                self._kept[key] = lesson
                self._size += lesson.nbytes
        return found

    def _look_up(self, views: Mapping[Key, DocView], labels: Sequence[str]) -> dict[Key, Lesson]:
        """From the file of an earlier training, or of the teacher."""
        store = self._opened(labels)
        found = store.read(views) if store else {}
        unknown = {key: view for key, view in views.items() if key not in found}
        if unknown:
            made = dict(zip(unknown, self._ask(list(unknown.values()), labels), strict=True))
            if store:
                store.write(made)
            found.update(made)
        return found

    def _opened(self, labels: Sequence[str]) -> LessonStore | None:
        if self._store is None and self.file:
            made_of = [digest(Path(self.nlp.path)), self.pipe.name, self.temperature, self.readings, *labels]
            layouts = TagLayout(len(self.pipe.labels)), TagLayout(len(labels))
            self._store = LessonStore(self.file, json.dumps(made_of), *layouts)
        return self._store

    def _ask(self, views: Sequence[DocView], labels: Sequence[str]) -> list[Lesson]:
        with self.nlp.select_pipes(disable=self.nlp.pipe_names[self.nlp.pipe_names.index(self.pipe.name) :]):
            # Not the texts themselves: spaCy refuses those of more than a million characters.
            docs = list(self.nlp.pipe(self.nlp.tokenizer(view.doc.text) for view in views))
        pipe = self.pipe
        own = [view_of(doc, pipe.settings.view) for doc in docs]
        same = [np.array_equal(mine.places(), view.places()) for mine, view in zip(own, views, strict=True)]
        emitted = iter(self._emissions([view for view, equal in zip(own, same, strict=True) if equal]))
        others = [doc for doc, equal in zip(docs, same, strict=True) if not equal]
        read = iter(pipe.kbest(others, self.readings) if others else [])
        return [
            next(emitted) if equal else _paths(view, next(read), labels, self.temperature)
            for view, equal in zip(views, same, strict=True)
        ]

    def _emissions(self, views: Sequence[DocView]) -> list[Lesson]:
        model, reader = self.pipe.model, DocReader.of(self.pipe.model, self.pipe.settings)
        if not views:
            return []
        scores = [rows for group in reader.groups(views) for rows in reader.emissions(model, group)]
        return [Emissions(model.ops.to_numpy(rows).astype(np.float32) / self.temperature) for rows in scores]


def load_teacher(
    path: str | Path | None = None,
    component: str = "tener_ner",
    share: float = 0.5,
    temperature: float = 1.0,
    readings: int = 8,
    cache_mb: int = 1000,
    cache_file: str | Path | None = None,
) -> Teacher:
    """A trained pipeline that teaches while another is trained. Nothing of it is saved.

    Registered as `spacy_tener.Teacher.v1`, for `[initialize.components.tener_ner.teacher]`. The student gets the
    teacher's labels. Where both read a text as the same units, tokens or characters, the whole distribution over
    readings is learned, exactly; elsewhere that of the teacher's best readings. Each text is read once and kept.

    path (Optional[Union[str, Path]]): The pipeline: a directory, or the name of an installed one.
    component (str): Name of the `tener_ner` in it.
    share (float): The teacher's share of the loss; the rest is the annotation's. Where there is no annotation, the
        loss has the teacher's part alone.
    temperature (float): What the teacher's scores are divided by: above 1 it says more about what it finds second best.
    readings (int): How many of its best readings are learned where the units differ.
    cache_mb (int): Most memory for what it says of texts, in MB; what exceeds it is asked again on each epoch.
    cache_file (Optional[Union[str, Path]]): A file, new or not, that keeps what it says for other trainings with the
        same teacher, as those of other seeds, also at the same time; some 100 bytes for each token and six labels.
    """
    for name, value, valid in (
        ("share", share, 0.0 < share <= 1.0),
        ("temperature", temperature, 0.0 < temperature < np.inf),
        ("readings", readings, readings >= 1),
        ("cache_mb", cache_mb, cache_mb >= 0),
    ):
        if not valid:
            wanted = "share is above 0 and at most 1, temperature above 0, readings 1 or more, cache_mb 0 or more"
            raise RemedyError(f"spacy_tener.Teacher.v1: {name} is {value}", f"Correct the config: {wanted}.")
    if not path:
        remedy = "Give `path` in its section of the config a trained pipeline, as by --paths.teacher."
        raise RemedyError("spacy_tener.Teacher.v1: no pipeline is named", remedy)
    nlp = spacy.load(path)
    pipe = find_recogniser(nlp, component, what=f"spacy_tener.Teacher.v1: the pipeline {path}")
    if not pipe.labels:
        raise RemedyError(f"spacy_tener.Teacher.v1: '{component}' of {path} has no labels", "Name a trained pipeline.")
    return Teacher(
        nlp,
        pipe,
        share=share,
        temperature=temperature,
        readings=readings,
        limit=cache_mb * _MB,
        file=Path(cache_file) if cache_file else None,
    )


def _paths(view: DocView, readings: Sequence[Parse], labels: Sequence[str], temperature: float) -> Paths:
    """Readings as tags of a view, and their shares. An entity off the edges of its units, or in white space, is left
    out."""
    layout, index = TagLayout(len(labels)), {label: i for i, label in enumerate(labels)}
    units = view.units()
    rows = [
        layout.encode(*_columns(view, units, reading, index), len(view)) if len(view) else np.empty(0, dtype=np.int64)
        for reading in readings
    ]
    scores = np.array([reading.log_probability for reading in readings]) / temperature
    weights = np.exp(scores - scores.max())
    return Paths(np.array(rows), weights / weights.sum(), layout)


def _columns(view: DocView, units: Units, reading: Parse, index: dict[str, int]) -> tuple[IntArray, IntArray, IntArray]:
    found = []
    for entity in reading.entities:
        place = view.unit_span(entity.start, entity.end)
        if place and entity.label in index and not units.space[[place[0], place[1] - 1]].any():
            found.append((*place, index[entity.label]))
    starts, ends, labels = np.array(sorted(found), dtype=np.int64).reshape(-1, 3).T
    return starts, ends, labels
