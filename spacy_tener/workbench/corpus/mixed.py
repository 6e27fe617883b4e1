"""Several corpora as one, each with a weight in the loss: for example a little gold and much silver annotation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from spacy.language import Language
from spacy.training import Example

from ...errors import InputError
from ...pipeline.learning.targets import WEIGHT

ReadExamples = Callable[[Language], Iterator[Example]]

_NAME = "spacy_tener.MixedCorpus.v1"
_OWN_WEIGHT = "tener_own_weight"
"""Key in a Doc's `user_data` of its own weight, before that of its reader."""


def mixed_corpus(
    readers: dict[str, Any],
    weights: dict[str, float] | None = None,
    repeat: dict[str, int] | None = None,
) -> ReadExamples:
    """Read the examples of several readers, one reader after the other; spaCy shuffles them on each epoch.

    Registered as `spacy_tener.MixedCorpus.v1`.

    readers (Dict[str, Callable[[Language], Iterator[Example]]]): The readers, by names of your choice.
    weights (Optional[Dict[str, float]]): The weight of a reader's examples in the loss of `tener_ner`, by the reader's
        name; default 1. It multiplies a Doc's own weight. Other components ignore weights.
    repeat (Optional[Dict[str, int]]): How often each reader is read, by its name; default 1.
    """
    # `Any`: spaCy validates the section's values before it creates the readers.
    readers, weights, repeat = dict(readers), dict(weights or {}), dict(repeat or {})
    _check(readers, weights, repeat)

    def read(nlp: Language) -> Iterator[Example]:
        for name, reader in readers.items():
            weight = weights.get(name, 1.0)
            for _ in range(repeat.get(name, 1)):
                example = None
                for example in reader(nlp):
                    if weight != 1.0:
                        data = example.reference.user_data
                        # A reader may give the same example again.
                        data[WEIGHT] = weight * data.setdefault(_OWN_WEIGHT, data.get(WEIGHT, 1.0))
                    yield example
                if example is None:
                    remedy = "Check its path, or take it out of the config."
                    raise InputError(_NAME, f"the reader {name!r} has no examples", remedy)

    return read


def _check(readers: Mapping[str, ReadExamples], weights: Mapping[str, float], repeat: Mapping[str, int]) -> None:
    if unknown := sorted({*weights, *repeat} - set(readers)):
        raise InputError(_NAME, f"no reader is named {unknown[0]!r}", f"The readers are: {', '.join(readers)}.")
    for name, weight in weights.items():
        if not 0.0 <= weight < float("inf"):
            raise InputError(_NAME, f"the weight of {name!r} is {weight}", "Give a number of 0 or more.")
    for name, times in repeat.items():
        if times < 0:
            raise InputError(_NAME, f"{name!r} is repeated {times} times", "Give a whole number of 0 or more.")
