"""What a frozen transformer makes of texts, kept while training, which shows it the same texts in every epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from spacy.attrs import IDX, LENGTH
from spacy.tokens import Doc
from torch import Tensor

Key = tuple[str, bytes]
Read = Callable[[Sequence[Doc]], Tensor]

_NOTED = 100_000
"""More texts than a corpus has in its dev part: a bound on what the cache remembers of predictions between updates,
and, once more, of those before."""


class FeatureCache:
    """The features of Docs, by their texts and where their tokens lie, on the transformer's device.

    It keeps what training reads; and what is predicted, only if it was predicted before the last update too, as the
    texts of dev are. So a pipeline that serves keeps nothing more once its training has ended. It takes no more when it
    has reached `limit` bytes. Copies begin empty.

    What is to be kept can be computed for each Doc alone: beside others it would differ in its last digits, and a
    training that was interrupted would end with other weights than one that was not.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._started = False
        self._kept: dict[Key, Tensor] = {}
        # The hashes of what was predicted since the last update, and before it.
        self._predicted: set[int] = set()
        self._evaluated: set[int] = set()

    def __reduce__(self) -> tuple[type[FeatureCache], tuple[int]]:
        return FeatureCache, (self.limit,)

    def __call__(self, docs: Sequence[Doc], read: Read, *, training: bool, alone: bool = True) -> Tensor:
        """The features of all tokens of the Docs. *Shape: [N, width]*

        read: makes the features of any Docs, *Shape: [N, width]*
        alone: compute what is to be kept for each Doc alone, rather than for all of them at once.
        """
        if training:
            self._started = self.limit > 0
            if self.size < self.limit and len(self._evaluated) < _NOTED:
                self._evaluated |= self._predicted
            self._predicted.clear()
        if not self._started:
            return read(docs)
        keys = [_key_of(doc) for doc in docs]
        found: dict[Key, Tensor] = {}
        left: dict[Key, Doc] = {}
        for key, doc in zip(keys, docs, strict=True):
            if key in self._kept:
                found[key] = self._kept[key]
            elif alone and self._keeps(key, training=training):
                found[key] = self._keep(key, read([doc]))
            else:
                left[key] = doc
        if left:
            parts = read(list(left.values())).split([len(doc) for doc in left.values()])
            found.update(zip(left, parts, strict=True))
            for key, part in zip(left, parts, strict=True):
                if not alone and self._keeps(key, training=training):
                    self._keep(key, part.clone())
        if not training and len(self._predicted) < _NOTED:
            self._predicted.update(map(hash, left))
        return torch.cat([found[key] for key in keys])

    def _keeps(self, key: Key, *, training: bool) -> bool:
        return self.size < self.limit and (training or hash(key) in self._evaluated)

    def _keep(self, key: Key, features: Tensor) -> Tensor:
        self._kept[key] = features
        self.size += features.nbytes
        return features


def _key_of(doc: Doc) -> Key:
    return doc.text, doc.to_array([IDX, LENGTH]).tobytes()
