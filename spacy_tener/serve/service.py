"""The models of a service, and what it answers, whatever the form of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from spacy.language import Language

from ..annotate.batches import TOGETHER, Task
from ..annotate.finding import Found, entity_task, labels
from ..pipeline.views.windows import batch_by_size
from .limits import Limits, RefusedError, too_long
from .metrics import Metrics
from .reading import explanation_tasks, utf16_offsets
from .schema import Entity, ModelInfo, Options
from .worker import Worker


@dataclass(frozen=True)
class Served:
    """A pipeline and the thread that runs it."""

    nlp: Language
    worker: Worker
    entities: Task
    explanations: Mapping[str, Task]

    @property
    def name(self) -> str:
        return self.worker.name

    @property
    def info(self) -> ModelInfo:
        meta = {key: str(self.nlp.meta.get(key, "")) for key in ("version", "description")}
        return ModelInfo(name=self.name, language=self.nlp.lang or "", labels=labels(self.nlp), **meta)


class Service:
    """Several models by their names; the first answers where none is named."""

    def __init__(self, models: Mapping[str, Language], limits: Limits) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self.stopping = False
        self.models = {
            name: Served(nlp, Worker(name, limits, self.metrics), entity_task(nlp), explanation_tasks(nlp))
            for name, nlp in models.items()
        }

    def start(self) -> None:
        for served in self.models.values():
            served.worker.start()

    async def close(self) -> None:
        """Finish what was accepted."""
        await asyncio.gather(*(served.worker.close() for served in self.models.values()))

    @property
    def waiting(self) -> dict[str, int]:
        """The characters that wait for each model."""
        return {name: served.worker.waiting for name, served in self.models.items()}

    @property
    def status(self) -> Literal["ok", "overloaded", "failed", "stopping"]:
        workers = [served.worker for served in self.models.values()]
        if not all(worker.alive for worker in workers):
            return "failed"
        if self.stopping:
            return "stopping"
        return "overloaded" if any(worker.full for worker in workers) else "ok"

    def model(self, name: str | None) -> Served:
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            raise RefusedError(
                404, "unknown_model", f"There is no model '{name}'. Use one of: {', '.join(self.models)}."
            )
        return self.models[name]

    async def entities(self, text: str, options: Options) -> list[Entity]:
        """The entities of one text."""
        self.check(text)
        served = self.model(options.model)
        return wanted(text, await served.worker.answer(served.entities, text), options)

    async def batch(self, texts: Sequence[str], options: Options) -> list[list[Entity]]:
        """The entities of several texts. Some of them at a time are put into the queue, where others wait as well."""
        if len(texts) > self.limits.texts:
            message = f"There are {len(texts):,} texts, and the most is {self.limits.texts:,}. Send fewer at once."
            raise RefusedError(413, "too_many_texts", message)
        for number, text in enumerate(texts):
            self.check(text, f"Text {number}")
        served = self.model(options.model)
        if served.worker.full:
            raise served.worker.refusal()
        found: list[list[Found]] = []
        for part in batch_by_size(texts, TOGETHER):
            futures = [await served.worker.submit(served.entities, text, patient=True) for text in part]
            found += await served.worker.wait_for(asyncio.gather(*futures))
        return [wanted(text, entities, options) for text, entities in zip(texts, found, strict=True)]

    async def explanation(self, text: str, model: str | None, form: str) -> str:
        """Why the entities of a text were found."""
        served = self.model(model)
        if not served.explanations:
            raise RefusedError(
                422, "not_explained", f"The model '{served.name}' has no tener_ner, so nothing explains it."
            )
        if len(text) > self.limits.explained:
            raise too_long(len(text), self.limits.explained)
        answer: str = await served.worker.answer(served.explanations[form], text)
        return answer

    def check(self, text: str, where: str = "The text") -> None:
        if len(text) > self.limits.characters:
            raise too_long(len(text), self.limits.characters, where)


def wanted(text: str, found: Sequence[Found], options: Options) -> list[Entity]:
    """The entities that are probable enough, with the offsets asked for."""
    offsets = utf16_offsets(text) if options.offsets == "utf16" else None
    return [
        Entity(
            start=offsets[start] if offsets else start,
            end=offsets[end] if offsets else end,
            label=label,
            text=text[start:end],
            probability=probability,
        )
        for start, end, label, probability in found
        if probability is None or probability >= options.minimum
    ]
