"""Dataclasses of an explanation, which `explain` returns, and their conversion to JSON and HTML.

Explanation
    ExplainedText                one for each text
        ExplainedEntity          found, possible and missed entities
            Attribution          influence of each unit on the entity
        LexiconWord              words of the lexicon that match in the text
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
    """The influence of one unit of the text on an entity.

    start, end (int): Character offsets of the unit.
    drop (float): Decrease of the entity's log-odds if the unit is masked. A positive drop means that the unit supports
        the entity, and a negative drop means that it is evidence against the entity.
    """

    start: int
    end: int
    drop: float


@dataclass(frozen=True)
class ExplainedEntity(FoundEntity):
    """An entity that was found, that is possible, or that was missed.

    alternatives (list[FoundEntity]): Overlapping entities with other boundaries or another label, most probable first.
    attributions (list[Attribution]): The influence of each masked unit, in the order of the text. Empty if no
        attributions were computed.
    is_in_output (bool): Whether the entity is in the output of the pipeline. A found entity is not, if its probability
        is below a threshold, or if a later component removes it.
    is_existing (bool): Whether the entity was set before the component was called, for example by an entity list.
        Existing entities have no attributions.
    outside (float | None): Probability that no entity is found in this place. None for an entity that was found.
    """

    alternatives: list[FoundEntity] = field(default_factory=list)
    attributions: list[Attribution] = field(default_factory=list)
    is_in_output: bool = True
    is_existing: bool = False
    outside: float | None = None


@dataclass(frozen=True)
class LexiconWord:
    """A word of the lexicon that matches in a text.

    start, end (int): Character offsets of the match.
    text (str): The word.
    tag (str): The word's tag in the lexicon: a part of speech in jieba's dictionary. It may be empty.
    known (bool): Whether the model has an embedding for the word: from training, from a file of vectors, or, for a
        word that was added after training, from similar words. Unknown words share one embedding.
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
    entities (list[ExplainedEntity]): The entities of the best label sequence.
    possible (list[ExplainedEntity]): Entities that are only in other label sequences of `k_best`.
    k_best (list[LabelSequence]): The k most probable label sequences, best first.
    entropy (float): Entropy of the distribution over all label sequences, in nats.
    gold (list[tuple[int, int, str]] | None): Start, end and label of the gold entities. None if the text is not
        annotated.
    missed (list[ExplainedEntity]): The gold entities that were not found. Their alternatives include the entities that
        were found in their place. A negative drop supports these.
    words (list[LexiconWord]): The words of the lexicon that match in the text, if the model has a lexicon.
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
    """Explanations of some texts by one pipeline. All offsets are in characters of a text.

    pipeline (dict[str, str]): The pipeline's language, name and version, the name and the view of the component, and
        `units`, which is "characters" if each token is a character, and otherwise "tokens".
    labels (list[str]): The labels of the pipeline.
    notes (list[str]): Notes for the page, such as how masked units are encoded.
    texts (list[ExplainedText]): The explanations.
    """

    pipeline: dict[str, str]
    labels: list[str]
    notes: list[str]
    texts: list[ExplainedText]

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON types. Numbers are rounded to six significant digits."""
        return cast("dict[str, Any]", _plain(self))

    def to_json(self) -> str:
        """Return the explanation as one line of JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False) + "\n"

    def to_html(
        self, *, title: str = "Explained entities", links: Sequence[str] = (), values: Mapping[str, str] | None = None
    ) -> str:
        """Return an HTML page that works without a network or a server.

        title (str): The title. It may contain names in braces.
        links (Sequence[str]): A URL for each text, to which the page links back.
        values (Optional[Mapping[str, str]]): The values of the names in the title.
        """
        data = {**self.to_dict(), "links": list(links)}
        for text in data["texts"]:
            for entity in (*text["entities"], *text["possible"], *text["missed"]):
                # Tuples instead of dicts, because the page of a long text contains very many attributions.
                entity["attributions"] = [
                    (unit["start"], unit["end"], round(unit["drop"], 3)) for unit in entity["attributions"]
                ]
        name = " ".join(filter(None, (self.pipeline["name"], self.pipeline["version"])))
        values = {**(values or {}), "pipeline": " · ".join(filter(None, (name, self.pipeline["component"])))}
        about = f"{{pipeline}} · units: {self.pipeline['units']}"
        lang = self.pipeline["lang"] or "en"
        return make_page(__package__, "page", Heading(title, about, values), data, lang=lang)


def _plain(value: Any) -> Any:
    """Convert dataclasses, sequences and numbers to JSON types."""
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def lexicon_words(vocabulary: LexiconVocabulary, view: DocView, window: Window, window_doc: Doc) -> list[LexiconWord]:
    """Return the words of the lexicon and of word lists that match in a window and begin in its core.

    The words are in the order of the encoder's input.

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
