"""The building block: a batch of records in, the same records with their entities out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import spacy
from spacy.cli._util import import_code
from spacy.language import Language
from thinc.api import require_gpu

from ..errors import RemedyError
from ..pipeline.finding import entity_finders, recognisers
from .answers import Answer
from .batches import Task, alike, answer_each
from .finding import entity_task, reading_task
from .settings import Settings

if TYPE_CHECKING:
    import pyarrow as pa

Row = Mapping[str, Any]


class Annotator:
    """Adds to records what a pipeline finds in their texts.

    Called with a list of dicts, or with a table or record batch of pyarrow, it returns the same with columns added:
    `entities`, `readings` if asked, and `error`. All columns that were there stay. A text that cannot be read gets its
    error and no entities, and the others theirs.

    It can be pickled and sent to another process, where it loads the pipeline with its first call.
    """

    def __init__(
        self, model: str | Path, settings: Settings | None = None, *, gpu_id: int = -1, code: str | Path | None = None
    ) -> None:
        """model: A pipeline's package or its directory.

        settings: What is read and added.
        gpu_id: The GPU, or -1 for the CPU.
        code: A Python file with what the pipeline needs.
        """
        self.model = str(model)
        self.settings = settings or Settings()
        self.gpu_id = gpu_id
        self.code = code
        self._nlp: Language | None = None
        self._task: Task | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_nlp": None, "_task": None}

    @property
    def nlp(self) -> Language:
        """The pipeline, loaded when it is first needed."""
        if self._nlp is None:
            import_code(self.code)
            if self.gpu_id >= 0:
                require_gpu(self.gpu_id)
            self._nlp = spacy.load(self.model)
        return self._nlp

    def use(self, nlp: Language) -> None:
        """Take a pipeline that is loaded already, and refuse one that cannot do what is asked."""
        self._task, self._nlp = make_task(nlp, self.settings), nlp

    @overload
    def __call__(self, rows: Sequence[Row]) -> list[dict[str, Any]]: ...

    @overload
    def __call__(self, rows: pa.Table | pa.RecordBatch) -> pa.Table: ...

    def __call__(self, rows: Any) -> Any:
        """Annotate a batch of records; the more at once, the better texts of like length come together."""
        if hasattr(rows, "column_names") or hasattr(rows, "schema"):
            from .tables import annotated_table

            return annotated_table(rows, self.settings, self.answers)
        return self._annotated_rows(rows)

    def _annotated_rows(self, rows: Sequence[Row]) -> list[dict[str, Any]]:
        added = self.settings.added
        answers = self.answers([row.get(self.settings.text) for row in rows])
        return [
            {**row, **answer.replacing([name for name in added if name in row]).columns(self.settings)}
            for row, answer in zip(rows, answers, strict=True)
        ]

    def answers(self, values: Sequence[Any]) -> list[Answer]:
        """What is found in texts, in their order. A value that is no text gets an error."""
        if self._task is None:
            self.use(self.nlp)
        task, found = self._task, [Answer.of_no_text(value) for value in values]
        assert task is not None
        texts = [_Text(value, place) for place, value in enumerate(values) if found[place] is None]
        for batch in alike(texts):
            for each, answer in zip(batch, answer_each(task, [one.text for one in batch]), strict=True):
                found[each.place] = Answer.of(each.text, answer)
        return [answer for answer in found if answer is not None]


@dataclass(frozen=True)
class _Text:
    """A text, and its place among those asked for."""

    text: str
    place: int

    def __len__(self) -> int:
        return len(self.text)


def make_task(nlp: Language, settings: Settings) -> Task:
    """What a pipeline is asked for."""
    if not entity_finders(nlp):
        raise RemedyError("The pipeline has no component that finds entities", "Name one with a trained tener_ner.")
    if not settings.k_best:
        return entity_task(nlp, probability=settings.probability)
    if not recognisers(nlp):
        raise RemedyError("The pipeline has no tener_ner, so it has no k best readings", "Leave k_best out.")
    return reading_task(nlp, settings.k_best, probability=settings.probability)
