"""From Docs to the entities that a tagger finds: windows, emissions, paths of the CRF, thresholds."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, islice

import numpy as np
from spacy.attrs import ENT_IOB, IS_SPACE, LENGTH
from spacy.tokens import Doc

from ..architectures.tagger import TaggerModel, depth_of, on_host, split_depths
from ..crf.marginals import EntitySpans
from ..types import IntArray
from .decoding import BatchDecoding, decode_nothing, to_spans, without_blocked
from .entities import UnitEntity
from .forced import ForcedWords, ListedSpan
from .settings import NERSettings
from .tags import LabelIndex, Mask, decodable_tags, fix_entities, join_masks, keep_words_whole
from .units import DocView, Units, letter_neighbours
from .windows import WindowBatcher, batch_by_size

_SEARCHED = 65_536
"""Units of texts that are searched together for words of lists, which costs less than by groups."""
_COMPARED = 50
"""Tokens after which their length is compared with that of training."""
_WORD_LENGTH = 1.2
"""Mean length of tokens that are not single characters."""


def decode_batches(
    model: TaggerModel,
    views: Sequence[DocView],
    labels: Sequence[str],
    index: LabelIndex,
    words: ForcedWords,
    settings: NERSettings,
    temperature: float,
    *,
    ignores_entities: bool,
) -> Iterator[tuple[Sequence[DocView], BatchDecoding]]:
    """Yield the views and the decoding of groups of Docs, which are of bounded size.

    words (ForcedWords): Words that are entities, and words that are none.
    temperature (float): Divisor of all scores of the CRF in probabilities.
    ignores_entities (bool): True to decode as if the Docs had no entities, but for `BatchDecoding.with_preset`.
    """
    depth = depth_of(model)
    if not any(len(view) for view in views):
        if views:
            yield views, decode_nothing(labels, len(views), depth)
        return
    batcher = WindowBatcher.of(model, settings)
    listed = chain.from_iterable(map(words.find, batch_by_size(views, _SEARCHED)))
    for group in batcher.groups(views):
        scores = batcher.emissions(model, group)
        # In the time in which a GPU computes the emissions.
        restrict = partial(_restrict, group, list(islice(listed, len(group))), labels, index, words, depth)
        restrictions = [restrict(keep_entities=True)]
        if ignores_entities and any(view.doc.has_annotation(ENT_IOB) for view in group):
            restrictions.append(restrict(keep_entities=False))
        crf_scorer, rows = on_host(model, scores)
        emissions, lengths, preset = split_depths(rows, depth), [len(view) for view in group] * depth, None
        for allowed, names, forced, blocked in restrictions:
            batch = BatchDecoding(crf_scorer, emissions, lengths, allowed, temperature, preset, depth, names, forced)
            preset = batch = without_blocked(batch, blocked) if blocked else batch
        yield group, batch


def _restrict(
    views: Sequence[DocView],
    listed: Sequence[Sequence[ListedSpan]],
    labels: Sequence[str],
    index: LabelIndex,
    words: ForcedWords,
    depth: int,
    *,
    keep_entities: bool,
) -> tuple[Mask | None, tuple[str, ...], EntitySpans, set[tuple[int, int, int, int]]]:
    """Return the tags that decoding may choose at each depth, or None if it may choose all; all labels, those of the
    model first; the forced entities; and text, start, end and label of blocked ones, -1 for all labels.

    *Shape:* (depth * units, tags)
    """
    texts: list[Units | None] = []
    all_labels = list(labels)
    forced, blocked = list[tuple[int, int, int, int]](), set[tuple[int, int, int, int]]()
    for text, (view, spans) in enumerate(zip(views, listed, strict=True)):
        units = None if view.is_plain else view.units()
        if units is not None and not keep_entities:
            units = units.unannotated()
        texts.append(units)
        if spans:
            chosen, banned = words.choose(view.doc, units, spans)
            all_labels += dict.fromkeys(span.label for span in chosen if span.label not in all_labels)
            forced += [(text, start, end, all_labels.index(label)) for start, end, label, _ in chosen]
            blocked.update(
                (text, start, end, labels.index(label) if label else -1)
                for start, end, label, _ in banned
                if not label or label in labels
            )
    masks: list[Mask | None] = [
        None if units is None else decodable_tags(units, index, inner=level > 0)
        for level in range(depth)
        for units in texts
    ]
    lengths, entities = [len(view) for view in views], to_spans(forced)
    allowed = join_masks(masks, lengths * depth, index.layout.n_tags)
    if (neighbours := letter_neighbours(views)) is not None:
        allowed = keep_words_whole(allowed, np.tile(neighbours, depth), index)
    if forced:
        allowed = fix_entities(allowed, entities, lengths, index.layout, depth)
    return allowed, tuple(all_labels), entities, blocked


def select_entities(batch: BatchDecoding, settings: NERSettings) -> list[list[UnitEntity]]:
    """Return the best entities of each text that reach the thresholds."""
    best, labels = batch.best, batch.labels
    probabilities, thresholds = [1.0] * best.label.size, [0.0] * len(labels)
    if settings.asks_probabilities:
        probabilities, thresholds = batch.best_probabilities.tolist(), settings.thresholds(labels)
    rows = list(zip(best.start.tolist(), best.end.tolist(), best.label.tolist(), probabilities, strict=True))
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
        if self._tokens < _COMPARED:
            return
        self._is_compared, length = True, self._characters / self._tokens
        if (trained > _WORD_LENGTH) != (length > _WORD_LENGTH):
            advice = "Use the tokenizer that it was trained with."
            if trained <= _WORD_LENGTH:
                advice = f"To read their characters: nlp.get_pipe('{name}').cfg['view'] = 'characters'"
            warnings.warn(
                f"'{name}' was trained on tokens of {trained:.1f} characters, and these Docs have tokens of "
                f"{length:.1f}: it will hardly find entities. {advice}",
                stacklevel=2,
            )
