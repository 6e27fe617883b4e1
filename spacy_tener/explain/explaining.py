"""Explain predicted entities: compute probabilities, alternative entities, attributions and lexicon matches.

An attribution is the influence of a single token or character on an entity. It is measured by occlusion: the token or
character is replaced by a mask, and the model predicts the text again. The attribution is the decrease in the entity's
log-odds:

    drop = log_odds(p(entity | text)) - log_odds(p(entity | masked text))

The tokens or characters that the model tags are called units. They are characters if the component is configured with
`view = "characters"`, and otherwise tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, cast

import numpy as np
from spacy.attrs import ENT_IOB, ENT_TYPE, IS_SPACE, LEMMA, MORPH, NORM, POS, SENT_START, TAG
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from thinc.api import Model

from ..embedders.lexicon_embed import LexiconVocabulary
from ..embedders.onnx_embed import FrozenFeatures
from ..embedders.tables import Vocabulary
from ..nn.shim import torch_shim
from ..pipeline.batch_decoding import Probabilities
from ..pipeline.decoding import Decoding, LabelSequence
from ..pipeline.entities import FoundEntity, offsets_of, without_entities
from ..pipeline.finding import PipelineNER, entity_labels, found_entities
from ..pipeline.nesting import all_entities
from ..pipeline.units import DocView, user_data_of
from ..pipeline.windows import Window, cut_windows
from ..types import EntityOffsets
from .explanation import (
    Attribution,
    ExplainedEntity,
    ExplainedText,
    Explanation,
    LexiconWord,
    lexicon_words,
)

# Start and end of a span, counted in the tokens or characters that the model tags.
Span = tuple[int, int]
TextOrExample = str | Doc | Example

# Entities with at least this probability are reported as possible if they are not predicted, but occur in one of the k
# best label sequences.
MIN_POSSIBLE = 0.02
# Minimum probability of the alternatives to a missed gold entity.
MIN_ALTERNATIVE = 0.01
# Mask for models without a mask token: a private-use character that does not occur in normal text. Embedders treat it
# as an unknown character.
UNKNOWN_CHARACTER = "\U0010fffd"
# In texts that are split into windows, only tokens or characters within this distance from an entity are masked. Each
# mask requires another prediction, and distant tokens have little influence.
REACH = 20
# Probabilities are clipped to the range from 1e-9 to 1 - 1e-9, so that log-odds are finite.
_MIN_PROBABILITY = 1e-9
# Token attributes that embedders can use as features. A masked token loses `_MASKED_ATTRIBUTES`, which would reveal its
# text, and keeps `_KEPT_ATTRIBUTES`.
_MASKED_ATTRIBUTES, _KEPT_ATTRIBUTES = [NORM, LEMMA, POS, TAG, MORPH], [SENT_START, ENT_IOB, ENT_TYPE]


def explain(
    nlp: Language,
    texts: TextOrExample | Iterable[TextOrExample],
    *,
    name: str | None = None,
    k_best: int = 5,
    alternatives: int = 3,
    attribution: bool = True,
) -> Explanation:
    """Explain the entities that a pipeline predicts.

    nlp (Language): A pipeline with a `tener_ner` component.
    texts (Union[str, Doc, Example, Iterable[Union[str, Doc, Example]]]): One or more texts. The tokens and entities of
        a Doc are kept. These existing entities have the probability 1 and no attributions. For an Example, gold
        entities that the model misses are explained, too.
    name (Optional[str]): The component name. By default, the first `tener_ner`.
    k_best (int): Number of label sequences to return for each text.
    alternatives (int): Maximum number of alternatives for each entity.
    attribution (bool): Whether to compute attributions. They require one prediction for each token or character.
    RETURNS (Explanation): The explanations, which can be converted to JSON and to an HTML page.
    """
    sources: list[TextOrExample] = [texts] if isinstance(texts, str | Doc | Example) else list(texts)
    pipeline = PipelineNER.of(nlp, name)
    explainer = _Explainer(pipeline, attribution=attribution)
    docs = pipeline.prepare(without_entities(text.predicted) if isinstance(text, Example) else text for text in sources)
    decodings = list(pipeline.ner.decode(docs))
    explained = [
        explainer(decoding, _gold(text, pipeline.ner.nested_key), k_best, alternatives)
        for text, decoding in zip(sources, decodings, strict=True)
    ]
    # Components after the `tener_ner` may change the Docs, so they run after the Docs have been explained.
    output_entities = found_entities(nlp, pipeline.complete(decodings))
    explained = [_mark_output(text, entities) for text, entities in zip(explained, output_entities, strict=True)]
    # Without a segmenter, spaCy's Chinese tokenizer splits texts into characters, so that units are characters.
    by_character = pipeline.ner.settings.view == "characters" or getattr(nlp.tokenizer, "segmenter", "") == "char"
    about = {**pipeline.describe(), "units": "characters" if by_character else "tokens"}
    return Explanation(about, entity_labels(nlp), explainer.notes(), explained)


def _mark_output(text: ExplainedText, entities: Iterable[FoundEntity]) -> ExplainedText:
    """Return a copy of an explanation in which `is_in_output` is set for all predicted and possible entities.

    entities (Iterable[FoundEntity]): The entities in the whole pipeline's output.
    """
    offsets = {entity.offsets for entity in entities}
    found, possible = (
        [replace(entity, is_in_output=entity.offsets in offsets) for entity in explained]
        for explained in (text.entities, text.possible)
    )
    return replace(text, entities=found, possible=possible)


def _gold(text: TextOrExample, key: str | None) -> list[EntityOffsets] | None:
    return list(map(offsets_of, all_entities(text.reference, key))) if isinstance(text, Example) else None


class _Explainer:
    """Explains texts, one at a time.

    mask (CharacterMask | None): Replaces tokens or characters to compute attributions. None if attributions are not
        computed.
    lexicon (LexiconVocabulary | None): The model's lexicon. None if the model does not use a lexicon.
    """

    def __init__(self, pipeline: PipelineNER, *, attribution: bool) -> None:
        models = pipeline.models
        characters = pipeline.ner.settings.view == "characters"
        self.pipeline = pipeline
        self.mask = find_mask(models, one_character=characters) if attribution else None
        vocabularies = (node.attrs.get("vocabulary") for model in models for node in model.walk())
        self.lexicon = next((found for found in vocabularies if isinstance(found, LexiconVocabulary)), None)

    def notes(self) -> list[str]:
        """Return notes for the HTML page, for example how the model encodes the mask that replaces characters."""
        notes = [] if self.mask is None else list(self.mask.notes)
        return notes if self.lexicon is not None else [*notes, "No words: this pipeline has no lexicon."]

    def __call__(
        self, decoding: Decoding, gold: list[EntityOffsets] | None, k: int, n_alternatives: int
    ) -> ExplainedText:
        """Explain one text.

        decoding (Decoding): The model's predictions for the text.
        gold (list[EntityOffsets] | None): The gold entities. None if the text is not annotated.
        k (int): Number of label sequences to return.
        n_alternatives (int): Maximum number of alternatives for each entity.
        """
        view, found, k_best = decoding.view, decoding.entities, decoding.k_best(k)
        missed = _missed(decoding, gold or [])
        annotated = {entity.offsets for entity in missed}
        possible = [entity for entity in _possible(found, k_best) if entity.offsets not in annotated]
        entities = [*found, *possible, *missed]
        existing = {entity.offsets for entity in decoding.existing}
        spans = [view.unit_span(entity.start, entity.end) for entity in entities]
        attributions: dict[int, list[Attribution]] = {}
        words: list[LexiconWord] = []
        for window in self._windows(view, cast(list[Span], spans[: len(found)])):
            window_doc = self.pipeline.window_doc(view, window)
            inside = {
                index: (span[0] - window.start, span[1] - window.start, entities[index].label)
                for index, span in enumerate(spans)
                # Masking cannot decrease a probability of 0, for example for an entity whose label is unknown.
                if span and entities[index].probability and entities[index].offsets not in existing
                if window.keep_start <= span[0] < window.keep_end and span[1] <= window.end
            }
            attributions.update(
                zip(inside, self._attributions(view, window_doc, window.start, list(inside.values())), strict=True)
            )
            words += lexicon_words(self.lexicon, view, window, window_doc) if self.lexicon else []
        alternatives = [
            [] if entity.offsets in existing else alternatives
            for entity, alternatives in zip(found, decoding.alternatives(n_alternatives), strict=True)
        ]
        alternatives += [
            [alternative for alternative in (*found, *possible) if _overlap(entity, alternative)] for entity in possible
        ]
        alternatives += _found_instead(decoding, missed, n_alternatives)
        outside = [None] * len(found) + _outside(decoding, entities[len(found) :])
        explained = [
            ExplainedEntity(
                *entity.offsets,
                entity.probability,
                alternatives[i],
                attributions.get(i, []),
                is_existing=entity.offsets in existing,
                outside=outside[i],
            )
            for i, entity in enumerate(entities)
        ]
        return ExplainedText(
            text=decoding.doc.text,
            entities=explained[: len(found)],
            possible=explained[len(found) : len(found) + len(possible)],
            k_best=k_best,
            entropy=decoding.entropy,
            gold=gold,
            missed=explained[len(found) + len(possible) :],
            words=words,
        )

    def _windows(self, view: DocView, entities: Sequence[Span]) -> list[Window]:
        """Split a text into windows at sentence ends. Sentence ends within a predicted entity are ignored."""
        ends = view.sentence_ends()
        for start, end in entities:
            ends[start : end - 1] = False
        settings = self.pipeline.ner.settings
        size, sentences = settings.prediction_window, settings.prediction_sentences
        return cut_windows(len(view), ends, size=size, overlap=settings.context, sentences=sentences)

    def _attributions(
        self, view: DocView, window_doc: Doc, offset: int, entities: Sequence[tuple[int, int, str]]
    ) -> list[list[Attribution]]:
        """Return the attributions for each entity in a window.

        Each masked copy of the window is predicted once, and the prediction is used for all entities.

        offset (int): Index of the window's first unit in the text.
        entities (Sequence[tuple[int, int, str]]): Start and end relative to the window, and the label.
        """
        if self.mask is None or not entities:
            return [[] for _ in entities]
        reach = REACH if len(window_doc) < len(view) else len(view)
        positions = _positions_near(window_doc, entities, reach)
        docs = chain([window_doc], self.mask.copies(window_doc, positions))
        probabilities = self.pipeline.probabilities(docs, entities)
        # The first row contains the log-odds without a mask, and row i + 1 the log-odds with position i masked.
        odds = _log_odds(probabilities)
        chars = [view.char_span(offset + position, offset + position + 1) for position in positions]
        return [
            [
                Attribution(*char_span, drop)
                for position, char_span, drop in zip(positions, chars, drops, strict=True)
                if start - reach <= position < end + reach
            ]
            for drops, (start, end, _) in zip((odds[0] - odds[1:]).T.tolist(), entities, strict=True)
        ]


def _possible(found: Sequence[FoundEntity], k_best: Sequence[LabelSequence]) -> list[FoundEntity]:
    """Return entities that are not predicted, but occur in one of the k best label sequences.

    Only entities whose probability is at least `MIN_POSSIBLE` are returned, sorted by offsets.
    """
    offsets = {entity.offsets for entity in found}
    possible = {
        entity.offsets: entity
        for sequence in k_best
        for entity in sequence.entities
        if (entity.probability or 0.0) >= MIN_POSSIBLE
    }
    return [possible[entity] for entity in sorted(possible.keys() - offsets)]


def _missed(decoding: Decoding, gold: Sequence[EntityOffsets]) -> list[FoundEntity]:
    """Return the gold entities that are not predicted, sorted by offsets, with the model's probabilities.

    The probability is 0 if the model does not have the label, or if an entity boundary is within a token.
    """
    missed = sorted({*gold}.difference(entity.offsets for entity in decoding.entities))
    probabilities = decoding.probabilities(missed)
    return [FoundEntity(*offsets, p) for offsets, p in zip(missed, probabilities, strict=True)]


def _found_instead(decoding: Decoding, missed: Sequence[FoundEntity], n: int) -> list[list[FoundEntity]]:
    """Return the alternatives to each missed gold entity, with the most probable alternative first.

    The alternatives are all predicted entities that overlap with the missed entity, and up to `n` other overlapping
    entities.
    """
    if not missed:
        return []
    found = decoding.entities
    offsets = {entity.offsets for entity in found}
    others = [entity for entity in decoding.marginals(MIN_ALTERNATIVE).entities if entity.offsets not in offsets]
    others.sort(key=_most_probable_first)
    instead = []
    for entity in missed:
        alternatives = [
            alternative
            for alternative in others
            if _overlap(entity, alternative) and alternative.offsets != entity.offsets
        ]
        instead.append(
            sorted(
                [*(alternative for alternative in found if _overlap(entity, alternative)), *alternatives[:n]],
                key=_most_probable_first,
            )
        )
    return instead


def _most_probable_first(entity: FoundEntity) -> float:
    return -(entity.probability or 0.0)


def _outside(decoding: Decoding, entities: Sequence[FoundEntity]) -> list[float | None]:
    """Return, for each span, the probability that it contains no part of an entity, at any nesting depth.

    The probability is None if a span boundary is within a token.

    entities (Sequence[FoundEntity]): The spans.
    """
    spans = [decoding.view.unit_span(entity.start, entity.end) for entity in entities]
    positions = np.array([span or (0, 1) for span in spans], dtype=np.int64).reshape(-1, 2)
    probabilities = decoding.batch.empty_probabilities(decoding.index, *positions.T)
    # Existing entities have the probability 1, but the CRF tags them O if the model does not have their label.
    # Therefore the probability of no entity is set to 0 here.
    probabilities[[any(_overlap(entity, other) for other in decoding.existing) for entity in entities]] = 0.0
    return [p if span else None for p, span in zip(probabilities.tolist(), spans, strict=True)]


def _overlap(a: FoundEntity, b: FoundEntity) -> bool:
    return a is not b and a.start < b.end and b.start < a.end


# Masks


@dataclass(frozen=True)
class CharacterMask:
    """A string that replaces a token or character, to measure its influence.

    text (str): The string.
    notes (tuple[str, ...]): Sentences for the HTML page that describe how the model encodes the string.
    """

    text: str
    notes: tuple[str, ...]

    def copies(self, doc: Doc, positions: Iterable[int]) -> Iterator[Doc]:
        """Yield copies of a Doc with a single masked token each.

        doc (Doc): The Doc. If the model tags characters, each token must be a character.
        positions (Iterable[int]): Indices of the tokens to mask, one for each copy.
        """
        words = [token.text for token in doc]
        spaces = [bool(token.whitespace_) for token in doc]
        attributes: Any = doc.to_array([*_MASKED_ATTRIBUTES, *_KEPT_ATTRIBUTES])
        data = user_data_of(doc)
        for position in positions:
            copy = Doc(doc.vocab, words=[*words[:position], self.text, *words[position + 1 :]], spaces=spaces)
            values = attributes.copy()
            values[position, : len(_MASKED_ATTRIBUTES)] = 0
            copy.from_array([*_MASKED_ATTRIBUTES, *_KEPT_ATTRIBUTES], values)
            copy.user_data.update(data)
            yield copy


def find_mask(models: Sequence[Model[Any, Any]], *, one_character: bool) -> CharacterMask:
    """Choose the mask for a list of models: a transformer's mask token, or a character that does not occur in training.

    one_character (bool): Whether the mask must be a single character. Required for models that tag characters, since
        mask tokens such as `[MASK]` are longer.
    """
    token = next((token for model in models for token in _mask_tokens(model)), None) if not one_character else None
    nodes = [node for model in models for node in model.walk()]
    notes = []
    if token is not None:
        notes.append("A masked unit is encoded as the transformer’s mask token.")
    if any(isinstance(node.attrs.get("vocabulary"), Vocabulary) for node in nodes):
        notes.append("A masked unit is encoded as an unknown word or character, as by word dropout in training.")
    if not notes or any(node.name == "hashembed" for node in nodes):
        # spaCy's HashEmbed hashes the mask to rows like any other string, so the mask is not encoded as an unknown
        # string.
        notes.append("A masked unit is encoded as a word that did not occur in training.")
    return CharacterMask(token or UNKNOWN_CHARACTER, tuple(notes))


def _mask_tokens(model: Model[Any, Any]) -> Iterator[str]:
    """Yield the mask token of each transformer in a model, including transformers from spacy-transformers."""
    # `shim.module` must only be accessed for transformers, because it switches a layer from NumPy to torch.
    shims = (torch_shim(node) for node in model.walk() if node.name == "transformer_embed")
    tokenizers = [getattr(shim.module, "subword_tokenizer", None) for shim in shims if shim.is_built]
    features = (node.attrs.get("features") for node in model.walk())
    tokenizers += [feature.encoder.subword_tokenizer for feature in features if isinstance(feature, FrozenFeatures)]
    for owner in (getattr(model, "tokenizer", None), *tokenizers):
        token = getattr(owner, "mask_token", None)
        if token:
            yield token


def _log_odds(probabilities: Probabilities) -> Probabilities:
    """Return the log-odds `log(p / (1 - p))` of clipped probabilities."""
    p = np.clip(probabilities, _MIN_PROBABILITY, 1.0 - _MIN_PROBABILITY)
    return np.log(p) - np.log1p(-p)


def _positions_near(doc: Doc, entities: Iterable[tuple[int, int, str]], reach: int) -> list[int]:
    """Return the indices of tokens within the distance `reach` from an entity, except white space.

    White space is not masked, because the model excludes entities that begin or end with white space. It does not
    exclude entities that begin or end with the mask.
    """
    near = np.zeros(len(doc), dtype=bool)
    for start, end, _ in entities:
        near[max(start - reach, 0) : end + reach] = True
    near &= doc.to_array(IS_SPACE) == 0
    return [int(position) for position in np.flatnonzero(near)]
