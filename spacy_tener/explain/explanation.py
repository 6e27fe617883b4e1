"""Dataclasses for the result of `explain`, which can be converted to JSON and HTML.

They are nested as follows:

    Explanation
        ExplainedText                one for each text
            ExplainedEntity          a predicted, possible or missed entity
                Attribution          influence of a token or character on the entity
            LexiconWord              a lexicon word that occurs in the text
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, cast

import numpy as np
from spacy.tokens import Doc

from ..embedders.lexicon_embed import WORD, LexiconVocabulary
from ..features.tokens import TokenBatch
from ..features.word_lists import find_layered
from ..pages import Heading, make_page
from ..pipeline.decoding import LabelSequence
from ..pipeline.entities import FoundEntity
from ..pipeline.units import DocView
from ..pipeline.windows import Window


@dataclass(frozen=True)
class Attribution:
    """The influence of a token or character on an entity.

    start, end (int): Character offsets of the token or character.
    drop (float): Decrease in the entity's log-odds if the token or character is masked. It is positive if the token or
        character supports the entity, and negative if it is evidence against the entity.
    """

    start: int
    end: int
    drop: float


@dataclass(frozen=True)
class ExplainedEntity(FoundEntity):
    """An entity with its explanation.

    The entity is predicted, possible (in one of the k best label sequences), or missed (annotated, but not predicted).

    alternatives (list[FoundEntity]): Overlapping entities with other boundaries or another label, most probable first.
    attributions (list[Attribution]): The influence of each masked token or character, in text order. Empty if
        attributions were not computed.
    is_in_output (bool): Whether the entity is in the pipeline's output. False for predicted entities whose probability
        is below a threshold, and for entities that a later component removes. Not used for missed entities.
    is_existing (bool): Whether the entity was set by an earlier component, such as `entity_lists`.
    outside (float | None): Probability that the span does not overlap with any entity. None for predicted entities.
    """

    alternatives: list[FoundEntity] = field(default_factory=list)
    attributions: list[Attribution] = field(default_factory=list)
    is_in_output: bool = True
    is_existing: bool = False
    outside: float | None = None


@dataclass(frozen=True)
class LexiconWord:
    """A lexicon word that occurs in a text.

    start, end (int): The word's character offsets in the text.
    text (str): The word.
    tag (str): The word's tag in the lexicon, such as its part of speech. Empty if the word has no tag.
    known (bool): Whether the model has an embedding for the word. A word that was added after training is known if its
        embedding can be computed from similar words.
    """

    start: int
    end: int
    text: str
    tag: str
    known: bool


@dataclass(frozen=True)
class ExplainedText:
    """The explanation of one text.

    text (str): The text.
    entities (list[ExplainedEntity]): The predicted entities.
    possible (list[ExplainedEntity]): Entities that are not predicted, but occur in one of the k best label sequences.
    k_best (list[LabelSequence]): The k most probable label sequences, best first.
    entropy (float): Entropy of the distribution over all label sequences, in nats.
    gold (list[tuple[int, int, str]] | None): Start, end and label of the gold entities. None if the text is not
        annotated.
    missed (list[ExplainedEntity]): The gold entities that are not predicted. Their alternatives include the predicted
        entities with which they overlap.
    words (list[LexiconWord]): The lexicon words that occur in the text. Empty if the model does not use a lexicon.
    """

    text: str
    entities: list[ExplainedEntity]
    possible: list[ExplainedEntity]
    k_best: list[LabelSequence]
    entropy: float = 0.0
    gold: list[tuple[int, int, str]] | None = None
    missed: list[ExplainedEntity] = field(default_factory=list)
    words: list[LexiconWord] = field(default_factory=list)


@dataclass(frozen=True)
class Explanation:
    """The explanations of one or more texts. All offsets are character offsets.

    pipeline (dict[str, str]): Metadata: the pipeline's language, name and version, the component's name and setting
        `view`, `probabilities` and `units`. The value of `probabilities` is "calibrated" or "uncalibrated". The value
        of `units` is "characters" if the model tags single characters, otherwise "tokens".
    labels (list[str]): The pipeline's labels.
    notes (list[str]): Notes for the HTML page, such as how the model encodes the mask.
    texts (list[ExplainedText]): The explanation of each text.
    """

    pipeline: dict[str, str]
    labels: list[str]
    notes: list[str]
    texts: list[ExplainedText]

    def to_dict(self) -> dict[str, Any]:
        """Convert the explanation to a JSON-serializable dictionary. Floats are rounded to six significant digits."""
        return cast("dict[str, Any]", _plain(self))

    def to_json(self) -> str:
        """Serialize the explanation to a single line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False) + "\n"

    def to_html(
        self, *, title: str = "Explained entities", links: Sequence[str] = (), values: Mapping[str, str] | None = None
    ) -> str:
        """Return a self-contained HTML page, which needs no network access.

        title (str): The title. A name in braces, such as `{pipeline}`, is replaced by its value in `values`.
        links (Sequence[str]): A URL for each text. The page links the text to it.
        values (Optional[Mapping[str, str]]): The values for the names in the title.
        """
        data = {**self.to_dict(), "links": list(links)}
        for text in data["texts"]:
            for entity in (*text["entities"], *text["possible"], *text["missed"]):
                # Attributions are stored as tuples instead of dicts, which makes the pages for long texts smaller.
                entity["attributions"] = [
                    (unit["start"], unit["end"], round(unit["drop"], 3)) for unit in entity["attributions"]
                ]
        name = " ".join(filter(None, (self.pipeline["name"], self.pipeline["version"])))
        values = {**(values or {}), "pipeline": " · ".join(filter(None, (name, self.pipeline["component"])))}
        about = f"{{pipeline}} · units: {self.pipeline['units']}"
        lang = self.pipeline["lang"] or "en"
        heading = Heading(title, about, values, self.pipeline["probabilities"] == "uncalibrated")
        return make_page(__package__, "page", heading, data, lang=lang)


def _plain(value: Any) -> Any:
    """Convert dataclasses and sequences to dicts and lists recursively, and round floats to six significant digits."""
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def lexicon_words(vocabulary: LexiconVocabulary, view: DocView, window: Window, window_doc: Doc) -> list[LexiconWord]:
    """Return the lexicon words that occur in a window, in the order of the model's input.

    Words that begin in the window's context are left out, because the adjacent window contains them.

    vocabulary (LexiconVocabulary): The lexicon, and the word lists that users have added.
    view (DocView): The text.
    window_doc (Doc): The window as a Doc.
    """
    lists = vocabulary.lists.active([window_doc])
    found = find_layered(vocabulary.lexicon, TokenBatch.of([window_doc]), lists, vocabulary.max_words)
    match, is_of_lexicon = found.match, found.layers == 0
    lexicons = [vocabulary.lexicon, *(words.lexicon for words, _ in lists)]
    has_row = np.zeros(is_of_lexicon.size, dtype=bool)
    has_row[is_of_lexicon] = vocabulary.tables[WORD].rows(vocabulary.keys(match.words[is_of_lexicon])[WORD]) != 0
    if not is_of_lexicon.all():
        similar = vocabulary.similar_words(found, [words for words, _ in lists])
        has_row[~is_of_lexicon] = (
            # An added word is known if it has at least one similar word that is not the unknown word (row 0).
            np.maximum.reduceat(similar.words, np.cumsum(similar.sizes) - similar.sizes)[similar.word_indices] != 0
        )
    columns = (found.layers, match.words, match.heads, match.tails, has_row)
    return [
        LexiconWord(
            *view.char_span(window.start + head, window.start + tail + 1),
            lexicon.words[word],
            lexicon.tag_names[lexicon.tags[word]],
            row,
        )
        for layer, word, head, tail, row in zip(*(column.tolist() for column in columns), strict=True)
        for lexicon in [lexicons[layer]]
        if window.kept_slice.start <= head < window.kept_slice.stop
    ]
