"""The served models. `Service` checks the request limits, and predicts or explains texts for all routes."""

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
from ..pipeline.finding import (
    InputText,
    TextWithWords,
    crf_pipes,
    entity_labels,
    find_crf_pipe,
    is_uncalibrated,
    make_doc,
)
from ..pipeline.windows import batch_by_size
from .metrics import Metrics
from .schema import EntityOut, Limits, ModelInfo, Options, ServiceError
from .worker import Worker


@dataclass(frozen=True)
class ServedModel:
    """A pipeline in the service, with its worker and the functions that the worker can apply to texts.

    nlp (Language): The pipeline.
    worker (Worker): The queue of texts to process.
    entities (TextFunction): Find the entities in texts.
    sequences (TextFunction): Find the entities and the best label sequence of the first `tener_ner`. There is no label
        sequence if the pipeline has no `tener_ner`.
    model_version (str): The pipeline's name, version and file digest when it was loaded.
    explanations (TextFunction | None): Explain the entities in texts. None if the pipeline has no `tener_ner`.
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
            name=self.name,
            language=self.nlp.lang or "",
            labels=entity_labels(self.nlp),
            explained=explained,
            uncalibrated=is_uncalibrated(self.nlp),
            **meta,
        )


class Service:
    """Served models, request limits and metrics.

    models (Mapping[str, Language]): Pipelines by name. The first pipeline is the default model.
    limits (Limits): Limits for requests and queues.
    gpu_id (int): The GPU that the pipelines were loaded on, or -1 for the CPU.
    """

    def __init__(self, models: Mapping[str, Language], limits: Limits, gpu_id: int = -1) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self.stopping = False
        # Pipelines must share a thread in two cases. On a GPU, only a single thread may use the GPU. With a shared
        # vocabulary, the end of a memory zone removes strings that another thread may still need.
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
        """Process all queued texts, and stop all workers."""
        await asyncio.gather(*(served.worker.close() for served in self.models.values()))

    @property
    def waiting(self) -> dict[str, int]:
        """Return the number of characters that each model still has to process."""
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
        """Return the model with the given name, or the default model if the name is None.

        Raises a ServiceError if the model doesn't exist.
        """
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            message = f"There is no model '{name}'. Use one of: {', '.join(self.models)}."
            raise ServiceError(404, "unknown_model", message)
        return self.models[name]

    async def entities(self, texts: Sequence[str], options: Options) -> list[list[EntityOut]]:
        """Return the entities in each text.

        Raises a ServiceError if there are too many texts, or if a text is too long or can't be processed.
        """
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
        """Apply a task to texts. Return a result or a `ServiceError` for each text.

        The texts are added to the queue in small batches, so that other requests don't have to wait for all of them.
        The timeout applies to all texts together. A graceful shutdown therefore takes no longer than the timeout.
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
        """Explain the entities in a text.

        Raises a ServiceError if the text is too long, or if the pipeline has no `tener_ner`.
        """
        served = self.model(model)
        if served.explanations is None:
            message = f"The model '{served.name}' has no tener_ner, which explanations need."
            raise ServiceError(422, "not_explained", message)
        self.check(text, limit=self.limits.explained)
        # The cost of an explanation: each character is masked once, and the window around the character is predicted
        # again.
        cost = len(text) * min(len(text), find_crf_pipe(served.nlp).settings.prediction_window)
        answer: Explanation = await served.worker.answer(served.explanations, _with_words(text, words), cost=cost)
        return answer

    def check(self, text: str, where: str = "The text", limit: int | None = None) -> None:
        """Raise a ServiceError if a text is too long.

        text (str): The text.
        where (str): The text's name in the error message, such as `texts.0`.
        limit (int | None): Maximum number of characters. By default, the service's `characters` limit.
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
    # Replace the pipeline's local path with the model's name in the service.
    return [replace(explained, pipeline={**explained.pipeline, "name": name}) for explained in explanations]


def to_response(text: str, entities: Sequence[FoundEntity], options: Options) -> list[EntityOut]:
    """Convert entities to response models. Apply the minimum probability and the offset unit from the request
    options."""
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
    """Return the UTF-16 offset of each character and of the end of the text.

    RETURNS (list[int] | None): The offsets. None if they are equal to the character offsets, which is true for texts
        without characters beyond U+FFFF.
    """
    if text.isascii() or max(text) <= "\uffff":
        return None
    return list(accumulate((1 + (char > "\uffff") for char in text), initial=0))
