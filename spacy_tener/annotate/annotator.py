"""The `Annotator`, which annotates batches of records with a pipeline."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import spacy
from spacy.cli._util import import_code
from spacy.language import Language

from ..errors import UserError
from ..inputs import DamagedText, check_text
from ..nn.run import use_gpu
from ..pipeline.finding import check_finders, crf_pipes, spancat_pipes
from .answers import AnnotateSettings, Answer, Record
from .tasks import TextFunction, answer_each, batch_by_length, entity_task

if TYPE_CHECKING:
    import pyarrow as pa


class Annotator:
    """Annotates records with the entities that a pipeline predicts.

    Call the annotator with a list of dicts, or with a pyarrow table or record batch. The annotator returns the records
    with two new columns, `entities` and `error`. If a text cannot be annotated, its record gets an error message and no
    entities. The other records are annotated as usual.

    You can pickle an annotator and send it to another process, which then loads the pipeline at the first call. Several
    threads can share an annotator. A lock ensures that only one thread annotates at a time.
    """

    def __init__(
        self,
        model: str | Path,
        settings: AnnotateSettings | None = None,
        *,
        gpu_id: int = -1,
        code: str | Path | None = None,
    ) -> None:
        """Create an annotator. The pipeline is loaded at the first call.

        model (Union[str, Path]): The pipeline: a package name or a directory.
        settings (Optional[AnnotateSettings]): Column names, and whether to add probabilities. None for the defaults.
        gpu_id (int): GPU ID, or -1 for the CPU.
        code (Optional[Union[str, Path]]): Python file with registered functions. The file is imported before the
            pipeline is loaded.
        """
        self.model = str(model)
        self.settings = settings or AnnotateSettings()
        self.gpu_id = gpu_id
        self.code = code
        self._nlp: Language | None = None
        self._task: TextFunction | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_nlp": None, "_task": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    @property
    def nlp(self) -> Language:
        """The pipeline. It is loaded at the first access."""
        if self._nlp is None:
            import_code(self.code)
            use_gpu(self.gpu_id)
            self._nlp = spacy.load(self.model)
        return self._nlp

    def use(self, nlp: Language) -> None:
        """Use a pipeline that is already loaded.

        Raise an error if no component predicts entities, or if the settings require probabilities that no component
        computes.
        """
        probability = self.settings.probability
        check_finders(nlp)
        if probability and not crf_pipes(nlp) and not spancat_pipes(nlp):
            reason = "The pipeline computes no probabilities, because it has neither a tener_ner nor a spancat"
            raise UserError(reason, "Remove --probability, or use a pipeline with one of these components.")
        self._nlp, self._task = nlp, entity_task(nlp, probability=probability)

    @overload
    def __call__(self, rows: Sequence[Record]) -> list[Record]: ...

    @overload
    def __call__(self, rows: pa.Table | pa.RecordBatch) -> pa.Table: ...

    def __call__(self, rows: Any) -> Any:
        """Annotate records.

        Pass many records in one call. The annotator sorts the texts by length, so that less padding is needed.
        """
        settings = self.settings
        if hasattr(rows, "schema"):
            from .arrow import annotated_table

            return annotated_table(rows, settings, self.answers)
        annotated = []
        for row, answer in zip(rows, self.answers([row.get(settings.text) for row in rows]), strict=True):
            existing = [name for name in settings.added if name in row]
            if existing:
                error = (
                    f"the field {', '.join(existing)} of the record was overwritten: set a prefix for the added columns"
                )
                answer = Answer(answer.text, answer.entities, error)
            annotated.append({**row, **answer.columns(settings)})
        return annotated

    def answers(self, values: Sequence[Any]) -> list[Answer]:
        """Annotate texts. Return the entities or the error message for each text, in input order.

        values (Sequence[Any]): The texts. A value that is not a string gets an error message.
        """
        texts = list(map(check_text, values))
        answers = [Answer(text, error=text.reason if isinstance(text, DamagedText) else None) for text in texts]
        readable = [index for index, text in enumerate(texts) if not isinstance(text, DamagedText)]
        with self._lock:  # a memory zone would delete strings that another thread still uses
            if self._task is None:
                self.use(self.nlp)
            assert self._task is not None
            for batch in batch_by_length(readable, lambda index: len(texts[index])):
                results = answer_each(self._task, [texts[index] for index in batch])
                for index, result in zip(batch, results, strict=True):
                    if isinstance(result, Exception):
                        error = f"the pipeline failed at this text: {type(result).__name__}: {result}"
                        answers[index] = Answer(texts[index], error=error)
                    else:
                        answers[index] = Answer(texts[index], result)
        return answers
