"""From Docs to the entities that a tagger finds: windows, emissions, paths of the CRF, thresholds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from spacy.attrs import IS_SPACE, LENGTH
from spacy.tokens import Doc

from ..architectures.tagger import TaggerModel, depth_of, on_host, split_depths
from ..types import IntArray
from .batch_decoding import BatchDecoding, decode_nothing
from .entities import UnitEntity
from .masks import allowed_tags
from .settings import NERSettings
from .tags import LabelIndex
from .units import DocView
from .windows import WindowBatcher

_MIN_TOKENS = 50
"""Tokens after which their length is compared with that of training."""
_MAX_CHARACTER_TOKEN_LENGTH = 1.2
"""Mean length of tokens that are not single characters."""


def decode_batches(
    model: TaggerModel, views: Sequence[DocView], labels: LabelIndex, settings: NERSettings, temperature: float
) -> Iterator[tuple[Sequence[DocView], BatchDecoding]]:
    """Yield the views and the decoding of groups of Docs, which are of bounded size.

    temperature (float): Divisor of all scores of the CRF in probabilities.
    """
    depth = depth_of(model)
    if not any(len(view) for view in views):
        if views:
            yield views, decode_nothing(labels.layout.n_labels, len(views), depth)
        return
    batcher = WindowBatcher.of(model, settings)
    for group in batcher.groups(views):
        scores = batcher.emissions(model, group)
        texts = [doc.view for doc in group]
        allowed = allowed_tags(texts, labels, depth)  # while a GPU computes the emissions
        crf_scorer, rows = on_host(model, scores)
        emissions = split_depths(rows, depth).reshape(depth, len(rows), labels.layout.n_tags)
        lengths = [len(view) for view in texts]
        yield texts, BatchDecoding(crf_scorer, emissions, lengths, allowed, temperature)


def select_entities(batch: BatchDecoding, labels: Sequence[str], settings: NERSettings) -> list[list[UnitEntity]]:
    """Return the best entities of each text that reach the thresholds."""
    best = batch.best
    columns = best.start.tolist(), best.end.tolist(), best.label.tolist()
    if not settings.needs_probabilities:
        found = [UnitEntity(start, end, labels[i]) for start, end, i in zip(*columns, strict=True)]
        return [found[part] for part in batch.slices(best)]
    thresholds, rows = settings.thresholds(labels), list(zip(*columns, batch.best_probabilities.tolist(), strict=True))
    return [
        [UnitEntity(start, end, labels[i], p) for start, end, i, p in rows[part] if p >= thresholds[i]]
        for part in batch.slices(best)
    ]


def word_lengths(doc: Doc) -> IntArray:
    """Return the length of each token in characters, without those of white space, of which a form has long ones."""
    lengths, is_space = doc.to_array([LENGTH, IS_SPACE]).astype(np.int64).T
    words: IntArray = lengths[is_space == 0]
    return words


class TokenLengths:
    """Warns once of a model that was trained on single characters and reads words, or vice versa."""

    def __init__(self) -> None:
        self._tokens = self._characters = 0
        self._is_compared = False

    def compare(self, views: Sequence[DocView], trained: float | None, name: str) -> None:
        """Count the tokens of Docs, and compare their lengths with those of training once there are enough.

        trained (float | None): The mean length of the tokens of training, in characters; None if it is not known.
        name (str): The component's.
        """
        if trained is None or self._is_compared:
            return
        for view in views:
            lengths = word_lengths(view.doc)
            self._tokens += lengths.size
            self._characters += int(lengths.sum())
        if self._tokens < _MIN_TOKENS:
            return
        self._is_compared, length = True, self._characters / self._tokens
        if (trained > _MAX_CHARACTER_TOKEN_LENGTH) != (length > _MAX_CHARACTER_TOKEN_LENGTH):
            advice = "Use the tokenizer that it was trained with."
            if trained <= _MAX_CHARACTER_TOKEN_LENGTH:
                advice = f"To read their characters: nlp.get_pipe('{name}').cfg['view'] = 'characters'"
            warnings.warn(
                f"'{name}' was trained on tokens of {trained:.1f} characters, and these Docs have tokens of "
                f"{length:.1f}: it will hardly find entities. {advice}",
                stacklevel=2,
            )
