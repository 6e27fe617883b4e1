"""Compute explanations: probabilities, alternative entities, attributions by occlusion, and words of the lexicon.

Attribution by occlusion measures the influence of a unit (a token or a character) on an entity. The unit is replaced by
a mask, the model predicts the text again, and the log-odds of the entity change:

    drop = log_odds(p(entity | text)) - log_odds(p(entity | text with a masked unit))
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

# Start and end in units of a view.
Span = tuple[int, int]
TextOrExample = str | Doc | Example

# Minimum probability of a possible entity: one that is not found, but is in another of the k best label sequences.
MIN_POSSIBLE = 0.02
# Minimum probability of an alternative to a missed entity.
MIN_ALTERNATIVE = 0.01
# The mask for models without a mask token: the last private-use code point, which no table or lexicon contains.
UNKNOWN_CHARACTER = "\U0010fffd"
# Number of units on each side of an entity that are masked if a Doc is longer than a window.
#
# Each masked unit takes a prediction, and distant units have little influence.
REACH = 20
# Probabilities are clipped to this distance from 0 and 1, so that their log-odds are finite.
_MIN_PROBABILITY = 1e-9
# Attributes that earlier components may set and embedders may use. A masked token keeps only those of the second list,
# because the attributes in the first list reveal the token's string.
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
    """Explain the entities in texts.

    nlp (Language): A pipeline with a `tener_ner`.
    texts (Union[str, Doc, Example, Iterable[Union[str, Doc, Example]]]): One or more texts. If a text is a Doc, its
        tokens and existing entities are kept. Existing entities have the probability 1 and no attributions. If a text
        is an Example, the explanation contains its gold entities, and explains those that the model misses.
    name (Optional[str]): Name of the component. By default, the first `tener_ner` is explained.
    k_best (int): Number of label sequences to return for each text.
    alternatives (int): Maximum number of alternatives to an entity.
    attribution (bool): Whether to compute attributions, which takes a prediction of the text for each of its units.
    RETURNS (Explanation): The explanations, which can be converted to JSON and to an HTML page.
    """
    sources: list[TextOrExample] = [texts] if isinstance(texts, str | Doc | Example) else list(texts)
    pipeline = PipelineNER.of(nlp, name)
    explainer = _Explainer(pipeline, attribution=attribution)
    docs = pipeline.prepare(without_entities(text.predicted) if isinstance(text, Example) else text for text in sources)
    decodings = list(pipeline.ner.decode(docs))
    explained = [
        explainer(decoding, _gold(text, pipeline.ner.overlap_key), k_best, alternatives)
        for text, decoding in zip(sources, decodings, strict=True)
    ]
    # The later components run last, because they change the Docs.
    output_entities = found_entities(nlp, pipeline.complete(decodings))
    explained = [_mark_output(text, entities) for text, entities in zip(explained, output_entities, strict=True)]
    # The tokens of spaCy's Chinese tokenizer are characters, unless the pipeline has a segmenter.
    by_character = pipeline.ner.settings.view == "characters" or getattr(nlp.tokenizer, "segmenter", "") == "char"
    about = {**pipeline.describe(), "units": "characters" if by_character else "tokens"}
    return Explanation(about, entity_labels(nlp), explainer.notes(), explained)


def _mark_output(text: ExplainedText, entities: Iterable[FoundEntity]) -> ExplainedText:
    """Set `is_in_output` of each explained entity, given the entities in the output of the pipeline."""
    offsets = {entity.offsets for entity in entities}
    found, possible = (
        [replace(entity, is_in_output=entity.offsets in offsets) for entity in explained]
        for explained in (text.entities, text.possible)
    )
    return replace(text, entities=found, possible=possible)


def _gold(text: TextOrExample, key: str | None) -> list[EntityOffsets] | None:
    return list(map(offsets_of, all_entities(text.reference, key))) if isinstance(text, Example) else None


class _Explainer:
    """Explains the Docs of a pipeline.

    mask (CharacterMask | None): The mask for attributions. None if no attributions are computed.
    lexicon (LexiconVocabulary | None): The model's lexicon, if it has one.
    """

    def __init__(self, pipeline: PipelineNER, *, attribution: bool) -> None:
        models = pipeline.models
        characters = pipeline.ner.settings.view == "characters"
        self.pipeline = pipeline
        self.mask = find_mask(models, one_character=characters) if attribution else None
        vocabularies = (node.attrs.get("vocabulary") for model in models for node in model.walk())
        self.lexicon = next((found for found in vocabularies if isinstance(found, LexiconVocabulary)), None)

    def notes(self) -> list[str]:
        """Return notes for the page: how masked units are encoded, and why an explanation has no words."""
        notes = [] if self.mask is None else list(self.mask.notes)
        return notes if self.lexicon is not None else [*notes, "No words: this pipeline has no lexicon."]

    def __call__(
        self, decoding: Decoding, gold: list[EntityOffsets] | None, k: int, n_alternatives: int
    ) -> ExplainedText:
        """Explain one text.

        gold (list[EntityOffsets] | None): The gold entities. None if the text is not annotated.
        k (int): Number of label sequences.
        n_alternatives (int): Maximum number of alternatives to an entity.
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
                # If the probability is 0, for example because the model lacks the label, it cannot drop.
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
        """Return the windows of a Doc. The core of a window ends at a sentence end that isn't within an entity, so that
        each entity lies in a single core."""
        ends = view.sentence_ends()
        for start, end in entities:
            ends[start : end - 1] = False
        settings = self.pipeline.ner.settings
        size, sentences = settings.prediction_window, settings.prediction_sentences
        return cut_windows(len(view), ends, size=size, overlap=settings.context, sentences=sentences)

    def _attributions(
        self, view: DocView, window_doc: Doc, offset: int, entities: Sequence[tuple[int, int, str]]
    ) -> list[list[Attribution]]:
        """Return the attributions of each entity in a window. All entities share the predictions of the masked Docs.

        offset (int): Index in the view of the window's first unit.
        entities (Sequence[tuple[int, int, str]]): Start and end in units of the window, and the label.
        """
        if self.mask is None or not entities:
            return [[] for _ in entities]
        reach = REACH if len(window_doc) < len(view) else len(view)
        positions = _positions_near(window_doc, entities, reach)
        docs = chain([window_doc], self.mask.copies(window_doc, positions))
        probabilities = self.pipeline.probabilities(docs, entities)
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
    """Return the entities that are in other label sequences than the best, with a probability of at least
    `MIN_POSSIBLE`, sorted by their offsets."""
    offsets = {entity.offsets for entity in found}
    possible = {
        entity.offsets: entity
        for sequence in k_best
        for entity in sequence.entities
        if (entity.probability or 0.0) >= MIN_POSSIBLE
    }
    return [possible[entity] for entity in sorted(possible.keys() - offsets)]


def _missed(decoding: Decoding, gold: Sequence[EntityOffsets]) -> list[FoundEntity]:
    """Return the gold entities that the model misses, sorted by their offsets, with the model's probabilities. The
    probability is 0 if the model cannot find an entity, because of its label or boundaries."""
    missed = sorted({*gold}.difference(entity.offsets for entity in decoding.entities))
    probabilities = decoding.probabilities(missed)
    return [FoundEntity(*offsets, p) for offsets, p in zip(missed, probabilities, strict=True)]


def _found_instead(decoding: Decoding, missed: Sequence[FoundEntity], n: int) -> list[list[FoundEntity]]:
    """Return the alternatives to each missed entity: the overlapping entities that were found, and the n most probable
    other overlapping entities. They are sorted by probability, the most probable first."""
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
    """Return the probability that no unit of an entity is in any predicted entity, at any nesting depth. The result is
    None if an entity doesn't consist of whole units."""
    spans = [decoding.view.unit_span(entity.start, entity.end) for entity in entities]
    positions = np.array([span or (0, 1) for span in spans], dtype=np.int64).reshape(-1, 2)
    probabilities = decoding.batch.empty_probabilities(decoding.index, *positions.T)
    # The CRF represents an existing entity with an unknown label by O, so its probability of outside is wrong.
    probabilities[[any(_overlap(entity, other) for other in decoding.existing) for entity in entities]] = 0.0
    return [p if span else None for p, span in zip(probabilities.tolist(), spans, strict=True)]


def _overlap(a: FoundEntity, b: FoundEntity) -> bool:
    return a is not b and a.start < b.end and b.start < a.end


# --- masks


@dataclass(frozen=True)
class CharacterMask:
    """The string that replaces a masked unit.

    text (str): The string.
    notes (tuple[str, ...]): Sentences on how the embedders encode the string. The page shows and translates them.
    """

    text: str
    notes: tuple[str, ...]

    def copies(self, doc: Doc, positions: Iterable[int]) -> Iterator[Doc]:
        """Yield a copy of a Doc for each position, in which the token at this position is masked.

        doc (Doc): A Doc whose tokens are units.
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
    """Return the mask for the embedders of some models: a transformer's mask token, or an unknown string.

    one_character (bool): Whether the mask must be a single character, because units are characters. Mask tokens of
        transformers, such as `[MASK]`, are longer.
    """
    token = next((token for model in models for token in _mask_tokens(model)), None) if not one_character else None
    nodes = [node for model in models for node in model.walk()]
    notes = []
    if token is not None:
        notes.append("A masked unit is encoded as the transformer’s mask token.")
    if any(isinstance(node.attrs.get("vocabulary"), Vocabulary) for node in nodes):
        notes.append("A masked unit is encoded as an unknown word or character, as by word dropout in training.")
    if not notes or any(node.name == "hashembed" for node in nodes):
        # spaCy's HashEmbed has no row for unknown strings. The mask is hashed to rows like any string.
        notes.append("A masked unit is encoded as a word that did not occur in training.")
    return CharacterMask(token or UNKNOWN_CHARACTER, tuple(notes))


def _mask_tokens(model: Model[Any, Any]) -> Iterator[str]:
    """Yield the mask tokens of all transformers: of this package's embedders, and of spacy-transformers."""
    # Only the shims of transformers are accessed: `shim.module` switches a layer from NumPy to torch.
    shims = (torch_shim(node) for node in model.walk() if node.name == "transformer_embed")
    tokenizers = [getattr(shim.module, "subword_tokenizer", None) for shim in shims if shim.is_built]
    features = (node.attrs.get("features") for node in model.walk())
    tokenizers += [feature.encoder.subword_tokenizer for feature in features if isinstance(feature, FrozenFeatures)]
    for owner in (getattr(model, "tokenizer", None), *tokenizers):
        token = getattr(owner, "mask_token", None)
        if token:
            yield token


def _log_odds(probabilities: Probabilities) -> Probabilities:
    """Return `log(p / (1 - p))`, with probabilities clipped to `_MIN_PROBABILITY`."""
    p = np.clip(probabilities, _MIN_PROBABILITY, 1.0 - _MIN_PROBABILITY)
    return np.log(p) - np.log1p(-p)


def _positions_near(doc: Doc, entities: Iterable[tuple[int, int, str]], reach: int) -> list[int]:
    """Return the indices of tokens within a distance of `reach` from an entity, without white space.

    No entity begins or ends with white space, but an entity could begin or end with a mask in its place.
    """
    near = np.zeros(len(doc), dtype=bool)
    for start, end, _ in entities:
        near[max(start - reach, 0) : end + reach] = True
    near &= doc.to_array(IS_SPACE) == 0
    return [int(position) for position in np.flatnonzero(near)]
