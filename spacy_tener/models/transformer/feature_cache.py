"""What a frozen transformer makes of texts, kept while training, which shows it the same texts in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc
from torch import Tensor

Key = tuple[str, bytes]
Read = Callable[[Sequence[Doc]], Tensor]


class FeatureCache:
    """The features of Docs, by their texts and where their tokens lie, in main memory.

    It begins to keep them with `start`, and takes no more once it has reached `limit` bytes. Copies begin empty, and
    wait for a start of their own.

    What is to be kept is computed for each Doc alone: beside others it would differ in its last digits, and a training
    that was interrupted would end with other weights than one that was not.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._started = False
        self._kept: dict[Key, Tensor] = {}

    def __reduce__(self) -> tuple[type[FeatureCache], tuple[int]]:
        return FeatureCache, (self.limit,)

    def start(self) -> None:
        self._started = self.limit > 0

    def __call__(self, docs: Sequence[Doc], read: Read) -> Tensor:
        """The features of all tokens of the Docs. *Shape: [N, width]*

        read: makes the features of any Docs, *Shape: [N, width]*
        """
        if not self._started:
            return read(docs)
        keys = [_key_of(doc) for doc in docs]
        found: dict[Key, Tensor] = {}
        left: dict[Key, Doc] = {}
        for key, doc in zip(keys, docs, strict=True):
            if key in self._kept:
                found[key] = self._kept[key]
            elif self.size < self.limit:
                found[key] = self._keep(key, read([doc]).cpu())
            else:
                left[key] = doc
        if left:
            parts = read(list(left.values())).cpu().split([len(doc) for doc in left.values()])
            found.update(zip(left, parts, strict=True))
        return torch.cat([found[key] for key in keys])

    def _keep(self, key: Key, features: Tensor) -> Tensor:
        self._kept[key] = features
        self.size += features.nbytes
        return features


def _key_of(doc: Doc) -> Key:
    return doc.text, doc.to_array([IDX, LENGTH]).tobytes()
