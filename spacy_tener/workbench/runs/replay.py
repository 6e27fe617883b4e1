"""spaCy's training loop, run again up to where it was stopped.

The loop keeps what it knows in local variables and generators: how far the schedules are, which examples come next, the
best score. None of it can be saved. So the loop goes again through all steps from the first, with the same random
numbers for the order of the examples and the scores of old, but without computing anything: thousands of steps in a
second.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from spacy.language import Language
from spacy.training import Example

from .randomness import State, host_state, same, set_host_state

Batch = tuple[int, Sequence[Example]]
Evaluate = Callable[[], tuple[float, dict[str, Any]]]
Infos = list[dict[str, Any]]

# Not among the infos' values that are kept: the results are put together again from the scores.
_RESULTS = "checkpoints"
# What sets examples apart, whatever reader they come from.
_ATTRIBUTES: list[int | str] = ["ORTH", "ENT_IOB", "ENT_TYPE"]


class Replay:
    """Stands between `spacy.training.loop.train_while_improving` and what it works on.

    evaluations: What the loop said at each evaluation.
    draws: Steps at which choosing the batch took random numbers, as for shuffling at the start of an epoch, and what
        state these were in before.
    checksum: Of all batches until now.
    """

    def __init__(self, nlp: Language, past: dict[str, Any] | None = None) -> None:
        self._nlp = nlp
        self.live = past is None
        self.evaluations: Infos = list(past["evaluations"]) if past else []
        self.draws: dict[int, State] = dict(past["draws"]) if past else {}
        self.checksum = 0
        self._evaluated = 0

    # What the loop asks of a pipeline

    def update(self, *args: Any, **kwargs: Any) -> None:
        if self.live:
            self._nlp.update(*args, **kwargs)

    @property
    def pipeline(self) -> list[tuple[str, Any]]:
        return list(self._nlp.pipeline) if self.live else []

    def use_params(self, params: dict[Any, Any] | None) -> Any:
        return self._nlp.use_params(params)

    # What else it is given

    def batches(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """The batches of `create_train_batches`, in the order of old as far as they were drawn before."""
        step = 0
        while (drawn := self._drawn(step, batches)) is not None:
            self.checksum = _checksum(drawn[1], self.checksum)
            yield drawn
            step += 1

    def evaluation(self, evaluate: Evaluate) -> Evaluate:
        """Gives the scores of old instead of measuring them again."""

        def evaluate_or_remember() -> tuple[float, dict[str, Any]]:
            if self.live:
                return evaluate()
            self._evaluated += 1
            before = self.evaluations[self._evaluated - 1]
            return before["score"], before["other_scores"]

        return evaluate_or_remember

    def callback(self, before_update: Callable[..., None] | None) -> Callable[..., None] | None:
        """`before_update`, which has to see the pipeline itself."""
        return before_update and (lambda _, step: before_update(self._nlp, step))

    # What is kept

    def differs(self, past: dict[str, Any]) -> bool:
        """Whether the batches were others than they had been."""
        return bool(self.checksum != past["checksum"])

    def past(self) -> dict[str, Any]:
        """What a replay begins with."""
        return {"evaluations": self.evaluations, "draws": list(self.draws.items()), "checksum": self.checksum}

    def note(self, info: dict[str, Any]) -> None:
        """Keep what the loop said at an evaluation."""
        self.evaluations.append({key: value for key, value in info.items() if key != _RESULTS})

    def infos(self) -> Infos:
        """What the loop said at all evaluations, as a logger takes it."""
        results = [(each["score"], each["step"]) for each in self.evaluations]
        return [{**each, _RESULTS: results[: n + 1]} for n, each in enumerate(self.evaluations)]

    def _drawn(self, step: int, batches: Iterator[Batch]) -> Batch | None:
        if not self.live:
            if step in self.draws:
                set_host_state(self.draws[step])
            return next(batches, None)
        before = host_state()
        drawn = next(batches, None)
        if not same(before, host_state()):
            self.draws[step] = before
        return drawn


def _checksum(batch: Sequence[Example], start: int) -> int:
    for example in batch:
        start = zlib.crc32(example.reference.to_array(_ATTRIBUTES).tobytes(), start)
    return start
