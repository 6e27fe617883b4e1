"""`Annotator`, which adds the entities that a pipeline finds to a batch of records."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import spacy
from spacy.cli._util import import_code
from spacy.language import Language

from ..errors import RemedyError
from ..inputs import DamagedText, check_text
from ..nn.run import use_gpu
from ..pipeline.doc_entities import TextFunction, answer_each, batch_by_length, entity_task
from ..pipeline.finding import check_finders, crf_pipes, span_finders
from .answers import AnnotateSettings, Answer, Record

if TYPE_CHECKING:
    import pyarrow as pa


class Annotator:
    """Adds the entities that a pipeline finds in texts to their records.

    Call it with a list of dicts, or with a table or record batch of pyarrow. It returns the same records with further
    columns: `entities` and `error`. A text that cannot be annotated gets an error instead of entities; all other texts
    are annotated.

    It can be pickled and sent to another process, which loads the pipeline at the first call. Threads may share it: a
    lock lets one of them annotate at a time.
    """

    def __init__(
        self,
        model: str | Path,
        settings: AnnotateSettings | None = None,
        *,
        gpu_id: int = -1,
        code: str | Path | None = None,
    ) -> None:
        """Set up an annotator; the pipeline is loaded at the first call.

        model (Union[str, Path]): A pipeline's package or its directory.
        settings (Optional[AnnotateSettings]): The column to read, and the columns to add.
        gpu_id (int): The GPU, or -1 for the CPU.
        code (Optional[Union[str, Path]]): A Python file with registered functions, to import before the pipeline.
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
        """The pipeline, loaded when it is first needed."""
        if self._nlp is None:
            import_code(self.code)
            use_gpu(self.gpu_id)
            self._nlp = spacy.load(self.model)
        return self._nlp

    def use(self, nlp: Language) -> None:
        """Use a loaded pipeline. Refuse one without a component for what the settings ask."""
        probability = self.settings.probability
        check_finders(nlp)
        if probability and not crf_pipes(nlp) and not span_finders(nlp):
            reason = "The pipeline has no tener_ner and no spancat, so it has no probabilities"
            raise RemedyError(reason, "Leave probability out.")
        self._nlp, self._task = nlp, entity_task(nlp, probability=probability)

    @overload
    def __call__(self, rows: Sequence[Record]) -> list[Record]: ...

    @overload
    def __call__(self, rows: pa.Table | pa.RecordBatch) -> pa.Table: ...

    def __call__(self, rows: Any) -> Any:
        """Annotate a batch of records. In a large one, more texts of similar length are predicted together."""
        settings = self.settings
        if hasattr(rows, "schema"):
            from .arrow import annotated_table

            return annotated_table(rows, settings, self.answers)
        annotated = []
        for row, answer in zip(rows, self.answers([row.get(settings.text) for row in rows]), strict=True):
            existing = [name for name in settings.added if name in row]
            if existing:
                error = f"the record's own {', '.join(existing)} was overwritten: set a prefix for the added columns"
                answer = Answer(answer.text, answer.entities, error)
            annotated.append({**row, **answer.columns(settings)})
        return annotated

    def answers(self, values: Sequence[Any]) -> list[Answer]:
        """Return an answer for each text, in order. A value that is not a text gets an error."""
        texts = list(map(check_text, values))
        answers = [Answer(text, error=text.reason if isinstance(text, DamagedText) else None) for text in texts]
        readable = [index for index, text in enumerate(texts) if not isinstance(text, DamagedText)]
        with self._lock:  # the end of a thread's memory zone would drop the strings of the others
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
