"""The data of an explanation, with the words of the lexicon in it, written as JSON or as one page."""

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
from ..pipeline.decoding import Reading
from ..pipeline.entities import FoundEntity
from ..pipeline.units import DocView
from ..pipeline.windows import Window


@dataclass(frozen=True)
class Attribution:
    """A unit of the text that an entity rests on, or that speaks against it.

    start, end (int): Offsets in characters of the text.
    drop (float): By how much the entity's log-odds fall where the unit is masked. Below 0, they rise.
    """

    start: int
    end: int
    drop: float


@dataclass(frozen=True)
class ExplainedEntity(FoundEntity):
    """An entity that was found, that is possible, or that was missed.

    alternatives (list[FoundEntity]): Other entities in its place, with other edges or another label, likeliest first.
    attributions (list[Attribution]): The units that it rests on, in the order of the text. Empty where nothing was masked.
    is_in_output (bool): Whether the pipeline gives it. It does not if the entity is below a threshold, or if another
        component decided otherwise.
    is_existing (bool): Whether the text had it before the model read it, from a list or another component: it has no
        evidence.
    outside (float | None): The probability that nothing is found in its place, of an entity that was not found.
    """

    alternatives: list[FoundEntity] = field(default_factory=list)
    attributions: list[Attribution] = field(default_factory=list)
    is_in_output: bool = True
    is_existing: bool = False
    outside: float | None = None


@dataclass(frozen=True)
class LexiconWord:
    """A word of the lexicon that was found in a text.

    start, end (int): Offsets in characters of the text.
    tag (str): The lexicon's tag of the word, or nothing: a part of speech in jieba's dictionary.
    known (bool): Whether the model has a row for this word, from training or from a file of vectors, or for words that
        it is like, if it came after training. All others share one.
    """

    start: int
    end: int
    text: str
    tag: str
    known: bool


@dataclass(frozen=True)
class ExplainedText:
    """One text.

    possible (list[ExplainedEntity]): Entities of other readings than the best, with what they would rest on.
    entropy (float): Entropy of the distribution over all readings, in nats.
    gold (list[tuple[int, int, str]] | None): Start, end and label of the annotated entities, where the text is
        annotated.
    missed (list[ExplainedEntity]): The annotated entities that were not found, with what was found in their place as
        alternatives. Evidence below 0 speaks for that.
    words (list[LexiconWord]): The words of the lexicon that were found in it, where the model reads them.
    """

    text: str
    entities: list[ExplainedEntity]
    possible: list[ExplainedEntity]
    k_best: list[Reading]
    entropy: float = 0.0
    gold: list[tuple[int, int, str]] | None = None
    missed: list[ExplainedEntity] = field(default_factory=list)
    words: list[LexiconWord] = field(default_factory=list)


@dataclass(frozen=True)
class Explanation:
    """Some texts, explained by one pipeline. All offsets are in characters of a text.

    pipeline (dict[str, str]): Its language, name and version, the component's name, the view that it has of a text, and
        its units: characters, too, where each token is one.
    labels (list[str]): The entity types that it can find.
    notes (list[str]): Notes on the mask, and on parts of an explanation that the pipeline lacks.
    """

    pipeline: dict[str, str]
    labels: list[str]
    notes: list[str]
    texts: list[ExplainedText]

    def to_dict(self) -> dict[str, Any]:
        """Return the data as lists, strings and numbers, rounded to six digits."""
        return cast("dict[str, Any]", _plain(self))

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False) + "\n"

    def to_html(
        self, *, title: str = "Explained entities", links: Sequence[str] = (), values: Mapping[str, str] | None = None
    ) -> str:
        """Return one page that needs neither network nor server.

        title (str): The title.
        links (Sequence[str]): For each text the address to link back to.
        values (Optional[Mapping[str, str]]): What stands in the title for names in braces.
        """
        data = {**self.to_dict(), "links": list(links)}
        for text in data["texts"]:
            for entity in (*text["entities"], *text["possible"], *text["missed"]):
                # Without the names of fields, since the page of a long text has very many of these.
                entity["attributions"] = [
                    (unit["start"], unit["end"], round(unit["drop"], 3)) for unit in entity["attributions"]
                ]
        name = " ".join(filter(None, (self.pipeline["name"], self.pipeline["version"])))
        values = {**(values or {}), "pipeline": " · ".join(filter(None, (name, self.pipeline["component"])))}
        about = f"{{pipeline}} · reads {self.pipeline['units']}"
        lang = self.pipeline["lang"] or "en"
        return make_page(__package__, "page", Heading(title, about, values), data, lang=lang)


def _plain(value: Any) -> Any:
    """Return a value as JSON types."""
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name)) for part in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def lexicon_words(vocabulary: LexiconVocabulary, view: DocView, window: Window, window_doc: Doc) -> list[LexiconWord]:
    """Return the words of the lexicon and of lists that begin in the core of a window, in the encoder's order.

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
            np.maximum.reduceat(similar.words, np.cumsum(similar.sizes) - similar.sizes)[similar.which] != 0
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
        if window.core.start <= head < window.core.stop
    ]
