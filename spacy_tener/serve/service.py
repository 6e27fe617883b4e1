"""`Service` has the models, checks requests against the limits, and predicts and explains texts for all routes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Depends, Request
from spacy.language import Language

from ..annotate.tasks import BATCH_CHARACTERS, TextFunction, entity_task, k_best_task
from ..explain import Explanation, explain
from ..files import digest
from ..nn.run import use_gpu
from ..pipeline.entities import FoundEntity
from ..pipeline.finding import InputText, TextWithWords, crf_pipes, entity_labels, find_crf_pipe, make_doc
from ..pipeline.windows import batch_by_size
from .metrics import Metrics
from .schema import EntityOut, Limits, ModelInfo, Options, ServiceError
from .worker import Worker


@dataclass(frozen=True)
class ServedModel:
    """A pipeline, the worker that runs it, and its tasks.

    nlp (Language): The pipeline.
    worker (Worker): The queue of texts and the thread that predicts them.
    entities (TextFunction): The task that finds entities.
    sequences (TextFunction): The task that finds entities and the best label sequence of the first `tener_ner`. If the
        pipeline has no `tener_ner`, there is no label sequence.
    model_version (str): Name and version of the pipeline, and a digest of its files when it was loaded.
    explanations (TextFunction | None): The task that explains entities. None if the pipeline has no `tener_ner`.
    """

    nlp: Language
    worker: Worker
    entities: TextFunction
    sequences: TextFunction
    model_version: str
    explanations: TextFunction | None

    @property
    def name(self) -> str:
        return self.worker.name

    @property
    def info(self) -> ModelInfo:
        meta = {key: str(self.nlp.meta.get(key, "")) for key in ("version", "description")}
        explained = self.explanations is not None
        return ModelInfo(
            name=self.name, language=self.nlp.lang or "", labels=entity_labels(self.nlp), explained=explained, **meta
        )


class Service:
    """The models and limits of a service.

    models (Mapping[str, Language]): The pipelines by name. The first is the default model.
    limits (Limits): The limits of requests.
    gpu_id (int): The GPU that the models were loaded on, or -1 for the CPU.
    """

    def __init__(self, models: Mapping[str, Language], limits: Limits, gpu_id: int = -1) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self.stopping = False
        # Pipelines that share a vocabulary share a thread: the end of a batch's memory zone removes strings from the
        # vocabulary. All pipelines on a GPU share a thread as well, because only one thread may use the GPU.
        shared = {name: gpu_id if gpu_id >= 0 else id(nlp.vocab) for name, nlp in models.items()}
        threads = {
            key: ThreadPoolExecutor(1, f"tener-{name}", initializer=use_gpu, initargs=(gpu_id,))
            for name, key in shared.items()
        }
        self.models = {
            name: ServedModel(
                nlp,
                Worker(name, threads[shared[name]], limits, self.metrics),
                entity_task(nlp),
                k_best_task(nlp, 1),
                _model_version(name, nlp),
                partial(_explain_texts, name, nlp) if crf_pipes(nlp) else None,
            )
            for name, nlp in models.items()
        }

    def start(self) -> None:
        self.stopping = False
        for served in self.models.values():
            served.worker.start()

    async def close(self) -> None:
        """Predict all accepted texts, and stop all workers."""
        await asyncio.gather(*(served.worker.close() for served in self.models.values()))

    @property
    def waiting(self) -> dict[str, int]:
        """Number of characters in the queue of each model."""
        return {name: served.worker.waiting for name, served in self.models.items()}

    @property
    def status(self) -> Literal["ok", "overloaded", "failed", "stopping"]:
        workers = [served.worker for served in self.models.values()]
        if any(worker.failed for worker in workers):
            return "failed"
        if self.stopping:
            return "stopping"
        return "overloaded" if any(worker.is_full() for worker in workers) else "ok"

    def model(self, name: str | None) -> ServedModel:
        """Return a model by name, or the default model."""
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            message = f"There is no model '{name}'. Use one of: {', '.join(self.models)}."
            raise ServiceError(404, "unknown_model", message)
        return self.models[name]

    async def entities(self, texts: Sequence[str], options: Options) -> list[list[EntityOut]]:
        """Return the entities in texts, or raise an error if a text is invalid or cannot be predicted."""
        if len(texts) > self.limits.texts:
            message = f"There are {len(texts):,} texts, and the limit is {self.limits.texts:,}. Send fewer at once."
            raise ServiceError(413, "too_many_texts", message)
        for number, text in enumerate(texts):
            self.check(text, f"texts.{number}")
        served = self.model(options.model)
        answers = await self.answers(served, served.entities, [_with_words(text, options.words) for text in texts])
        error = next((answer for answer in answers if isinstance(answer, ServiceError)), None)
        if error:
            raise error
        return [to_response(text, entities, options) for text, entities in zip(texts, answers, strict=True)]

    async def answers(self, served: ServedModel, task: TextFunction, texts: Sequence[InputText]) -> list[Any]:
        """Return the result or the error of a task for each text.

        The texts are added to the queue in batches, one after the other, so that other requests wait less. The timeout
        applies to all texts together, because a service that stops waits for one timeout.
        """
        if served.worker.is_full():
            raise served.worker.overloaded()
        answers: list[Any] = []
        try:
            async with asyncio.timeout(self.limits.timeout):
                for part in batch_by_size(texts, BATCH_CHARACTERS):
                    answers += await served.worker.answers(task, part)
        except TimeoutError:
            seconds = f"{self.limits.timeout:g} seconds"
            message = f"{len(answers):,} of {len(texts):,} texts were predicted in {seconds}. Send fewer at once."
            raise ServiceError(503, "overloaded", message) if answers else served.worker.overloaded() from None
        return answers

    async def explanation(self, text: str, model: str | None, words: Mapping[str, str] | None = None) -> Explanation:
        """Return the explanation of a text."""
        served = self.model(model)
        if served.explanations is None:
            message = f"The model '{served.name}' has no tener_ner, which explanations need."
            raise ServiceError(422, "not_explained", message)
        self.check(text, limit=self.limits.explained)
        # Each character is masked once, and the window that contains it is predicted again.
        cost = len(text) * min(len(text), find_crf_pipe(served.nlp).settings.prediction_window)
        answer: Explanation = await served.worker.answer(served.explanations, _with_words(text, words), cost=cost)
        return answer

    def check(self, text: str, where: str = "The text", limit: int | None = None) -> None:
        """Raise an error if a text is too long.

        where (str): The position of the text in the request, for the message.
        limit (int | None): Maximum number of characters, by default the limit of the service.
        """
        limit = self.limits.characters if limit is None else limit
        if len(text) > limit:
            message = f"{where} has {len(text):,} characters, and the limit is {limit:,}. Split it."
            raise ServiceError(413, "text_too_long", message)


async def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service_of)]


def _model_version(name: str, nlp: Language) -> str:
    weights = digest(Path(nlp.path))[:8] if nlp.path else ""
    return " ".join(filter(None, [name, str(nlp.meta.get("version", "")), weights]))


def _with_words(text: str, words: Mapping[str, str] | None) -> InputText:
    return TextWithWords(text, words) if words else text


def _explain_texts(name: str, nlp: Language, texts: Sequence[InputText]) -> list[Explanation]:
    with nlp.memory_zone():
        explanations = [explain(nlp, make_doc(nlp, text)) for text in texts]
    # Replace the path on this machine by the name in the service.
    return [replace(explained, pipeline={**explained.pipeline, "name": name}) for explained in explanations]


def to_response(text: str, entities: Sequence[FoundEntity], options: Options) -> list[EntityOut]:
    """Return the entities whose probability is at least the minimum, with offsets in the requested unit."""
    offsets = utf16_offsets(text) if options.offsets == "utf16" else None
    return [
        EntityOut(
            start=offsets[entity.start] if offsets else entity.start,
            end=offsets[entity.end] if offsets else entity.end,
            label=entity.label,
            text=text[entity.start : entity.end],
            probability=entity.probability,
        )
        for entity in entities
        if entity.probability is None or entity.probability >= options.minimum
    ]


def utf16_offsets(text: str) -> list[int] | None:
    """Return the UTF-16 offsets of all characters and of the end of the text. Return None if they equal the indices."""
    if text.isascii() or max(text) <= "\uffff":
        return None
    return list(accumulate((1 + (char > "\uffff") for char in text), initial=0))
