"""Predict entities: compute emissions in windows, decode them with the CRF, and filter the entities by probability."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from spacy.attrs import ENT_IOB, IS_SPACE, LENGTH
from spacy.tokens import Doc

from ..architectures.tagger import TaggerModel, copy_for_decoding, depth_of, split_depths
from ..crf.crf_numpy import CRFPredictor
from ..embedders.char_embed import embeds_bigrams
from ..embedders.tables import table_embedders
from ..types import AnyFloats, IntArray
from .batch_decoding import BatchDecoding, decode_nothing
from .entities import UnitEntity
from .masks import allowed_nested_tags, allowed_tags
from .settings import NERSettings
from .tags import LabelIndex, Mask
from .units import DocView
from .windows import WindowBatcher

# Minimum number of tokens for comparing the mean token length with the training data.
_MIN_TOKENS = 50
# Maximum mean token length (in characters) of texts that are tokenized into characters. The maximum is above 1, because
# numbers and Latin words can be single tokens.
_MAX_CHARACTER_TOKEN_LENGTH = 1.2
# Maximum mean token length (in characters) of texts in Chinese or Japanese that are tokenized into words. It is between
# 1.5 and 2 for both, and 3.5 or more for languages with an alphabet.
_MAX_CHINESE_WORD_LENGTH = 2.5


def decode_batches(
    model: TaggerModel, views: Sequence[DocView], labels: LabelIndex, settings: NERSettings, temperature: float
) -> Iterator[tuple[Sequence[DocView], BatchDecoding]]:
    """Run the model on Docs and decode the emissions. Yield groups of Docs, each with its decoding.

    A group's emissions fit into memory.

    views (Sequence[DocView]): The Docs, as sequences of tokens or characters.
    temperature (float): Divisor of the CRF's scores when probabilities are computed.
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
        lengths = [len(view) for view in texts]
        # A GPU still computes the emissions at this point. The masks are prepared on the CPU in the meantime.
        allowed = allowed_tags(texts, labels) if depth == 1 else None
        crf_predictor, rows = copy_for_decoding(model, scores)
        emissions = split_depths(rows, depth).reshape(depth, len(rows), labels.layout.n_tags)
        existing_rows = frozenset[tuple[int, int, int, int]]()
        if depth > 1:
            decode = partial(decode_depths, crf_predictor, emissions, lengths)
            allowed = allowed_nested_tags(texts, labels, depth, decode)
            existing_rows = existing_spans(texts, labels)
        yield texts, BatchDecoding(crf_predictor, emissions, lengths, allowed, temperature, existing_rows)


def existing_spans(views: Sequence[DocView], labels: LabelIndex) -> frozenset[tuple[int, int, int, int]]:
    """Return the existing entities whose label the model has: text index, start, end and label index."""
    index = {label: i for i, label in enumerate(labels.hashes)}
    return frozenset(
        (text, start, end, index[label])
        for text, view in enumerate(views)
        if view.doc.has_annotation(ENT_IOB)
        for start, end, label in view.units().entities()
        if label in index
    )


def decode_depths(crf: CRFPredictor, emissions: AnyFloats, lengths: list[int], allowed: Mask) -> IntArray:
    """Return the best tag sequence at each level under a mask. *Shape:* (depth, units)"""
    depth, _, n_tags = emissions.shape
    tags = crf.decode(emissions.reshape(-1, n_tags), lengths * depth, allowed.reshape(-1, n_tags))
    return tags.reshape(depth, -1)


def select_entities(batch: BatchDecoding, labels: Sequence[str], settings: NERSettings) -> list[list[UnitEntity]]:
    """Return the entities in each text's best tag sequence. Entities below the probability threshold are discarded."""
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


def token_lengths(doc: Doc) -> IntArray:
    """Return the length of each token in characters. White space tokens are skipped, because they can be very long."""
    lengths, is_space = doc.to_array([LENGTH, IS_SPACE]).astype(np.int64).T
    without_space: IntArray = lengths[is_space == 0]
    return without_space


class TokenizationCheck:
    """Detects texts that are tokenized differently from the training data: into characters instead of words, or vice
    versa.

    `compare` shows a warning once.
    """

    def __init__(self) -> None:
        self._tokens = self._characters = 0
        self._is_compared = False

    def compare(self, views: Sequence[DocView], trained: float | None, name: str) -> None:
        """Compare the mean token length with the training data. Show a warning if the texts are tokenized differently.

        The Docs of all calls are included in the mean. The comparison is done once, as soon as there are enough tokens.

        trained (float | None): Mean token length in the training data, in characters. If None, there is no comparison.
        name (str): The component's name, for the warning.
        """
        if trained is None or self._is_compared:
            return
        for view in views:
            lengths = token_lengths(view.doc)
            self._tokens += lengths.size
            self._characters += int(lengths.sum())
        if self._tokens < _MIN_TOKENS:
            return
        self._is_compared, length = True, self._characters / self._tokens
        if (trained > _MAX_CHARACTER_TOKEN_LENGTH) != (length > _MAX_CHARACTER_TOKEN_LENGTH):
            advice = "Use the tokenizer that the component was trained with."
            if trained <= _MAX_CHARACTER_TOKEN_LENGTH:
                advice = (
                    f"To process characters instead of tokens, set nlp.get_pipe('{name}').cfg['view'] = 'characters'."
                )
            warnings.warn(
                f"'{name}' was trained on tokens with {trained:.1f} characters on average, but the tokens of these "
                f"Docs have {length:.1f} characters on average. It will probably find few entities. {advice}",
                stacklevel=2,
            )


def warn_about_character_embedder(model: TaggerModel, token_length: float, name: str) -> None:
    """Show a warning if the model embeds words of a language with an alphabet by `spacy_tener.CharEmbed.v1`.

    This embedder is the default of most architectures. Its embeddings of bigrams are meant for characters as tokens.
    The component's own default depends on the language, see `factory.py`.

    token_length (float): Mean token length of the training data in characters.
    name (str): Name of the component, for the warning.
    """
    if token_length <= _MAX_CHINESE_WORD_LENGTH or not any(map(embeds_bigrams, table_embedders(model))):
        return
    warnings.warn(
        f"'{name}' has the embedder spacy_tener.CharEmbed.v1, which is meant for Chinese characters as tokens, but the "
        f"tokens of the training data are words, with {token_length:.1f} characters on average. It will probably find "
        "few entities. Use an embedder for words, such as spacy_tener.WordCharEmbed.v1 or spacy.HashEmbedCNN.v2. "
        "For German, `python -m spacy tener config --lang de` writes such a config. For other languages, replace de.",
        stacklevel=2,
    )
