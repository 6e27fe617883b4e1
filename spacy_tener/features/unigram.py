"""Tokenizers of multilingual encoders: subwords with scores, of which a text's best sequence is taken, as a
`tokenizer.json`, and the subwords that texts of some scripts need."""

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

_WORD_START = "▁"
"""What stands for a space in a subword."""
_BOUNDARY_TOKENS = "<s>", "</s>"
_UNKNOWN = "<unk>"
_SPECIAL_TOKENS = "<s>", "<pad>", "</s>", _UNKNOWN, "<mask>"
_BATCH_SIZE = 1000
_ADDED_TOKEN_OPTIONS = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
_MAX_BYTES = 6
"""The library tokenizers looks up sequences of characters of less bytes; longer ones by single characters."""
_BMP_SIZE = 1 << 16
"""The characters below this one include all of those that are made of so few bytes."""
_LETTERS = "L"
_MAIN_FRACTION, _MINOR_FRACTION = 0.1, 0.01
"""Share of the letters of texts from which on a script is theirs, and from which on it is that of words among them."""
_MINOR_SUBWORDS = 5000
"""Number of subwords of a script of words among them, the most frequent first."""


def make_tokenizer(subwords: Sequence[str], scores: FloatArray, normal_forms: Mapping[str, str]) -> TokenizerJson:
    """Return a tokenizer that splits texts as that of XLM-RoBERTa does.

    subwords (Sequence[str]): All subwords by id, with special ones, and `▁` where a word begins.
    scores (FloatArray): The logarithm of each subword's probability. *Shape:* (subwords,)
    normal_forms (Mapping[str, str]): What characters are replaced by before a text is split.
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
    """Return True if subwords of the tokenizer can be removed: it takes the best sequence by their scores."""
    return bool(json.loads(tokenizer.json)["model"]["type"] == "Unigram")


def reduce_vocabulary(tokenizer: TokenizerJson, ids: IntArray) -> TokenizerJson:
    """Return a tokenizer with these subwords only, in this order. It must have the special ones."""
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
    """Return the ids of the subwords that such texts need, ascending. *Shape:* (subwords,)

    These are the subwords that the texts have, all of the scripts that they are written in, the most frequent ones of
    scripts with a few words in them, and all single characters: what lacks its subword is split into characters.

    texts (Iterable[str]): Such as those of the training data.
    whole_scripts (bool): False to keep the subwords that the texts have, and single characters.
    """
    content = json.loads(tokenizer.json)
    subwords, scores = zip(*content["model"]["vocab"], strict=True)
    is_kept = np.array([len(subword) < 2 for subword in subwords])
    is_kept[[subword["id"] for subword in content["added_tokens"]] + [content["model"]["unk_id"]]] = True
    is_kept[int(np.argmin(scores))] = True  # An unknown character costs a little more than the rarest subword.
    characters, counts = Counter[str](), Counter[str]()
    texts = iter(texts)
    while batch := list(itertools.islice(texts, _BATCH_SIZE)):
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
        for number, subword in enumerate(subwords):  # in order of their frequency
            scripts = scripts_of(subword)
            is_kept[number] |= all(script in whole or remaining[script] > 0 for script in scripts)
            remaining.subtract(scripts)
    return np.flatnonzero(is_kept)


def _to_tokenizer(content: object) -> TokenizerJson:
    return TokenizerJson(json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode())


def scripts_of(text: str) -> set[str]:
    """Return the scripts of a text's letters, by the first words of their names in Unicode: LATIN, CJK."""
    return set(map(_script_of, text)) - {""}


@cache
def _script_of(character: str) -> str:
    if unicodedata.category(character)[0] != _LETTERS:
        return ""
    return unicodedata.name(character, "").replace("-", " ").partition(" ")[0]


def with_combining_marks(normal_forms: Mapping[str, str]) -> dict[str, str]:
    """Return the normal forms of characters, and those of letters with marks after them that are one character: é."""
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
    """Return what strings are replaced by as a map that sentencepiece and the library tokenizers read.

    It is a trie of bytes in an array of units, the array's length before it and the forms behind it. A unit at place
    `p` has the place of its block, `p ^ offset`. A byte `c` leads from there to the unit at `block ^ c`, which has the
    label `c`. If a string ends there, the unit at the place of the next block holds where its form begins.
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
    """Return where the block of each string's next bytes is; that of an end has one unit.

    Blocks lie within each other: each begins at the first index where all of its units are free. No two begin at one.
    """
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
