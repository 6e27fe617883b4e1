"""From texts to what is said of their entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example

from ..pipeline.confidence import Parse
from ..pipeline.entities import FoundEntity
from ..pipeline.finding import Recogniser
from ..pipeline.units import DocView
from ..pipeline.windows import Window
from .encoders import HeatMap, encoders, look
from .explanation import Evidence, ExplainedEntity, ExplainedText, Explanation, Passage
from .masking import REACH, Mask, log_odds, mask_of, places_near
from .passages import Stretch, stretches
from .words import LexiconWord, lexicon_of, lexicon_words, radicals, structures_of

Units = tuple[int, int]
Text = str | Doc | Example

POSSIBLE = 0.02
"""From this probability on, an entity of one of the best readings is explained though it was not found."""


def explain(
    nlp: Language,
    texts: Text | Iterable[Text],
    *,
    name: str | None = None,
    readings: int = 5,
    rivals: int = 3,
    evidence: bool = True,
    maps: bool = True,
) -> Explanation:
    """Say of each entity of some texts how sure the pipeline is, what else it may be, and why it was found.

    nlp (Language): A pipeline with `tener_ner`.
    texts (Union[str, Doc, Example, Iterable[Union[str, Doc, Example]]]): One text or several. A Doc keeps its tokens;
        its entities do not change what is found. Those of an Example's reference are shown beside what is found.
    name (Optional[str]): The component's name; the first `tener_ner` if there is none.
    readings (int): How many of the best readings of each text.
    rivals (int): How many rivals of each entity, at most.
    evidence (bool): Whether to mask units, one at a time: it takes as long as reading each text once per unit.
    maps (bool): Whether to show what the encoder looked at, in the passages with an entity.
    RETURNS (Explanation): The data, which writes itself as JSON or as a page.
    """
    given: list[Text] = [texts] if isinstance(texts, str | Doc | Example) else list(texts)
    explainer = _Explainer.of(Recogniser.of(nlp, name), evidence=evidence, maps=maps)
    recogniser = explainer.recogniser
    docs = recogniser.read(text.predicted if isinstance(text, Example) else text for text in given)
    ner = recogniser.ner
    columns = (docs, ner.scored(docs), ner.rivals(docs, rivals), ner.kbest(docs, readings), ner.entropy(docs))
    explained = [
        replace(explainer(doc, found, others, best), entropy=entropy, gold=_gold(text))
        for text, doc, found, others, best, entropy in zip(given, *columns, strict=True)
    ]
    return Explanation(recogniser.describe(), list(ner.labels), explainer.notes(), explained)


def _gold(text: Text) -> list[tuple[int, int, str]] | None:
    ents = text.reference.ents if isinstance(text, Example) else None
    return None if ents is None else [(ent.start_char, ent.end_char, ent.label_) for ent in ents]


@dataclass(frozen=True)
class _Part:
    """A window of a Doc as the model reads it.

    doc: its units as tokens.
    stretches: what of it is shown.
    entities: those that lie in it, in units of the window.
    """

    doc: Doc
    window: Window
    stretches: list[Stretch]
    entities: dict[int, Units]


class _Explainer:
    """Explains one Doc after the other.

    mask: for evidence; None for none.
    """

    def __init__(self, recogniser: Recogniser, *, mask: Mask | None, maps: bool) -> None:
        self.recogniser = recogniser
        self.mask = mask
        models = recogniser.models
        self.encoders = encoders(models) if maps else None
        self.lexicon = lexicon_of(models)
        self.structures = structures_of(models)

    @classmethod
    def of(cls, recogniser: Recogniser, *, evidence: bool, maps: bool) -> _Explainer:
        characters = recogniser.ner.settings.view == "characters"
        mask = mask_of(recogniser.models, one_character=characters) if evidence else None
        return cls(recogniser, mask=mask, maps=maps)

    def notes(self) -> list[str]:
        """How evidence was found, and what there is nothing of."""
        notes = [] if self.mask is None else [self.mask.says]
        if self.encoders == []:
            notes.append(
                "This pipeline has none of this package's encoders with attention or relations, so that there are no "
                "maps of what it looked at."
            )
        if self.lexicon is None:
            notes.append("This pipeline reads no lexicon, so that there are no words to show.")
        return notes

    def __call__(
        self, doc: Doc, found: list[FoundEntity], rivals: list[list[FoundEntity]], readings: list[Parse]
    ) -> ExplainedText:
        """All but the text's entropy and annotation."""
        view = self.recogniser.view(doc)
        possible = _possible(found, readings)
        entities = [*found, *possible]
        spans = [view.unit_span(entity.start, entity.end) or (0, 0) for entity in entities]
        evidence: dict[int, list[Evidence]] = {}
        passages: list[Passage] = []
        for part in self._parts(view, spans, len(found)):
            evidence.update(self._evidence(part, view, [entity.label for entity in entities]))
            passages += self._passages(part, view, spans)
        others = [*rivals, *([other for other in entities if _overlap(own, other)] for own in possible)]
        explained = [
            ExplainedEntity(own.start, own.end, own.label, own.probability, others[i], evidence.get(i, []))
            for i, own in enumerate(entities)
        ]
        made = radicals(self.structures, doc.text) if self.structures else {}
        return ExplainedText(
            text=doc.text,
            entities=explained[: len(found)],
            possible=explained[len(found) :],
            readings=readings,
            passages=passages,
            radicals=made,
        )

    def _parts(self, view: DocView, spans: Sequence[Units], n_found: int) -> Iterator[_Part]:
        """spans: of all entities; the first so many were found, and are not cut."""
        shown = stretches(view, spans[:n_found], self.recogniser.ner.settings)
        for window, group in groupby(shown, key=lambda stretch: stretch.window):
            own = list(group)
            inside = {
                index: (start - window.start, end - window.start)
                for index, (start, end) in enumerate(spans)
                if own[0].start <= start < own[-1].end and end <= window.end
            }
            yield _Part(self.recogniser.piece(view, window), window, own, inside)

    def _evidence(self, part: _Part, view: DocView, labels: Sequence[str]) -> dict[int, list[Evidence]]:
        """Of each entity of a part, the units near it, and by how much its log-odds fall where one is masked."""
        if self.mask is None or not part.entities:
            return {}
        reach = REACH if len(part.doc) < len(view) else len(view)
        places = places_near(part.doc, list(part.entities.values()), reach)
        wanted = [(*span, labels[index]) for index, span in part.entities.items()]
        docs = chain([part.doc], self.mask.copies(part.doc, places))
        odds = log_odds(self.recogniser.probabilities(docs, wanted))
        offsets = [view.char_span(part.window.start + place, part.window.start + place + 1) for place in places]
        drops = (odds[0] - odds[1:]).T.tolist()
        return {
            index: [
                Evidence(*offset, drop)
                for place, offset, drop in zip(places, offsets, own, strict=True)
                if start - reach <= place < end + reach
            ]
            for own, (index, (start, end)) in zip(drops, part.entities.items(), strict=True)
        }

    def _passages(self, part: _Part, view: DocView, entities: Sequence[Units]) -> Iterator[Passage]:
        words = lexicon_words(self.lexicon, part.doc) if self.lexicon else []
        shown = {
            stretch: not entities or any(stretch.start <= start < stretch.end for start, _ in entities)
            for stretch in part.stretches
        }
        maps: list[HeatMap] = []
        if self.encoders and any(shown.values()):
            maps = look(self.encoders, lambda: self.recogniser.predict(part.doc))
        for stretch, wanted in shown.items():
            yield _passage(stretch, view, words, maps if wanted else [])


def _possible(found: Sequence[FoundEntity], readings: Sequence[Parse]) -> list[FoundEntity]:
    """Entities of other readings than the best that are not improbable, in the order of the text."""
    places = {(entity.start, entity.end, entity.label) for entity in found}
    others = {
        (entity.start, entity.end, entity.label): entity
        for reading in readings
        for entity in reading.entities
        if (entity.probability or 0.0) >= POSSIBLE
    }
    return [others[place] for place in sorted(others.keys() - places)]


def _overlap(a: FoundEntity, b: FoundEntity) -> bool:
    return a is not b and a.start < b.end and b.start < a.end


def _passage(stretch: Stretch, view: DocView, words: Sequence[LexiconWord], maps: Sequence[HeatMap]) -> Passage:
    within, offset = stretch.within, stretch.within.start
    places = [i for i, word in enumerate(words) if within.start <= word.start and word.end <= within.stop]
    units = [view.char_span(unit, unit + 1) for unit in range(stretch.start, stretch.end)]
    return Passage(
        *view.char_span(stretch.start, stretch.end),
        units,
        [replace(words[i], start=words[i].start - offset, end=words[i].end - offset) for i in places],
        [found.part(within, np.array(places, dtype=np.int64)) for found in maps],
    )
