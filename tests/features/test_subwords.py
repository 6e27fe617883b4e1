"""Subword tokens: the alignment of tokens and subwords, and the windows that are the input of a transformer."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from tiny_transformer import POSITIONS, VOCAB, VOCABULARY, characters, save_tiny_transformer
from tokenizers import Tokenizer, models, processors

from spacy_tener.errors import UserError
from spacy_tener.features.subwords import SubwordBatch, SubwordTokenizer, TokenizerJson, align, overlapping_windows

CLS, SEP = "[CLS]", "[SEP]"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = save_tiny_transformer(tmp_path_factory.mktemp("bert"))
    return TokenizerJson((folder / "tokenizer.json").read_bytes()).subword_tokenizer(POSITIONS, 5)


def word_doc(text: str) -> Doc:
    return spacy.blank("en")(text)


def names_of(found: SubwordBatch) -> list[str]:
    return [VOCABULARY[subword] for subword in found.ids.tolist()]


def subwords_of_tokens(tokenizer: SubwordTokenizer, *docs: Doc) -> list[tuple[str, list[str]]]:
    """Return the tokens with their subwords."""
    found = tokenizer(docs)
    names = names_of(found)
    tokens = [token.text for doc in docs for token in doc]
    assert found.n_tokens == len(tokens)
    assert found.tokens.tolist() == sorted(found.tokens)
    names_of_tokens = [[names[row] for row in found.indices[found.tokens == i]] for i in range(len(tokens))]
    return list(zip(tokens, names_of_tokens, strict=True))


def test_characters_share_covering_subword(tokenizer):
    digits = [(digit, ["2023"]) for digit in "2023"]
    phone = [(letter, ["iphone"]) for letter in "iPhone"]
    found = subwords_of_tokens(tokenizer, characters("2023在iPhones去龘😀"))
    unknown = [("龘", ["[UNK]"]), ("😀", ["[UNK]"])]
    assert found == [*digits, ("在", ["在"]), *phone, ("s", ["##s"]), ("去", ["去"]), *unknown]


def test_word_has_all_covering_subwords(tokenizer):
    assert subwords_of_tokens(tokenizer, word_doc("John's iPhonesx rained.")) == [
        ("John", ["john"]),
        ("'s", ["[UNK]", "s"]),
        ("iPhonesx", ["iphone", "##s", "##x"]),
        ("rained", ["rained"]),
        (".", ["."]),
    ]


def test_whitespace_and_control_characters_have_no_subword(tokenizer):
    found = subwords_of_tokens(tokenizer, characters("吴 \n\u200b\x07\u3000在"))
    assert found == [("吴", ["吴"]), *((c, []) for c in " \n\u200b\x07\u3000"), ("在", ["在"])]


def test_stripped_accents_do_not_shift_alignment(tokenizer):
    decomposed = "jo\u0308hn去"
    assert [subwords for _, subwords in subwords_of_tokens(tokenizer, characters(decomposed))] == [["john"]] * 5 + [
        ["去"]
    ]
    assert subwords_of_tokens(tokenizer, word_doc("Jöhn rained")) == [("Jöhn", ["john"]), ("rained", ["rained"])]


def test_subwords_do_not_depend_on_tokenization(tokenizer):
    text = "吴重阳 bought 2023 iPhones 去"
    one_token = Doc(VOCAB, words=[text], spaces=[False])
    for doc in (characters(text), word_doc(text)):
        np.testing.assert_array_equal(tokenizer([doc]).ids, tokenizer([one_token]).ids)


def test_batching_does_not_change_subwords(tokenizer):
    docs = [characters("吴重"), characters(""), word_doc("   "), word_doc("new york"), characters("20")]
    alone = [pair for doc in docs for pair in subwords_of_tokens(tokenizer, doc)]
    assert subwords_of_tokens(tokenizer, *docs) == alone
    assert tokenizer(docs).lengths.tolist() == [4, 4, 3]


def test_windows_start_and_end_with_special_tokens(tokenizer):
    found = tokenizer([characters("吴重阳" * 40), characters("在")])
    names = names_of(found)
    ends = np.cumsum(found.lengths)
    assert {names[end - length] for end, length in zip(ends, found.lengths, strict=True)} == {CLS}
    assert {names[end - 1] for end in ends} == {SEP}
    assert max(found.lengths) == POSITIONS


def test_windows_cover_all_subwords_of_long_text(tokenizer):
    text = "吴重阳在中国银行工作2023" * 30
    found = subwords_of_tokens(tokenizer, characters(text))
    assert found == [(c, [c] if c not in "2023" else ["2023"]) for c in text]


def test_token_longer_than_window_has_all_subwords(tokenizer):
    long_word = "吴" * 100
    ((_, subwords),) = subwords_of_tokens(tokenizer, Doc(VOCAB, words=[long_word]))
    assert subwords == list(long_word)


def test_fork_after_tokenization_emits_no_warning(tmp_path):
    """Run in a new process, since tokenizers warns after other tests have tokenized batches."""
    save_tiny_transformer(tmp_path)
    code = """
import os, sys
from pathlib import Path
from spacy_tener.features.subwords import TokenizerJson
subwords = TokenizerJson(Path(sys.argv[1]).read_bytes())
subwords.encode(["吴重阳 bought 2023 iPhones"] * 100)
child = os.fork()
subwords.encode(["吴"] * 100)
if child:
    os.waitpid(child, 0)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "tokenizer.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("n_subwords", [0, 1, 9, 10, 11, 14, 15, 19, 20, 100, 101, 999])
@pytest.mark.parametrize(("size", "overlap"), [(10, 0), (10, 3), (20, 9), (11, 5)])
def test_subwords_have_context_on_both_sides(n_subwords, size, overlap):
    starts, window_indices = overlapping_windows(n_subwords, size=size, overlap=overlap)
    assert len(window_indices) == n_subwords
    assert len(starts) == (0 if n_subwords == 0 else 1) or n_subwords > size
    ends = starts + min(size, n_subwords)
    assert starts.size == 0 or (starts[0], ends[-1]) == (0, n_subwords)
    for subword, window in enumerate(window_indices):
        assert starts[window] <= max(subword - overlap, 0)
        assert min(subword + overlap + 1, n_subwords) <= ends[window]


@pytest.mark.parametrize("n_subwords", [21, 100, 999])
def test_number_of_windows_is_minimal(n_subwords):
    starts, _ = overlapping_windows(n_subwords, size=20, overlap=5)
    assert (len(starts) - 1) * 10 + 10 < n_subwords <= len(starts) * 10 + 10


@pytest.mark.parametrize("seed", range(5))
def test_alignment_equals_brute_force(seed):
    rng = np.random.default_rng(seed)
    cuts = np.sort(rng.integers(0, 60, size=20))
    starts, ends = cuts[::2], cuts[1::2]
    edges = np.sort(rng.integers(0, 60, size=24))
    spans = np.stack([edges[::2], edges[1::2]], axis=1)
    expected = [
        (subword, token)
        for token, (start, end) in enumerate(zip(starts, ends, strict=True))
        for subword, (begin, stop) in enumerate(spans)
        if max(start, begin) < min(end, stop)
    ]
    has_text = ends > starts
    subwords, tokens = align(spans, starts[has_text], ends[has_text])
    assert list(zip(subwords.tolist(), np.flatnonzero(has_text)[tokens].tolist(), strict=True)) == expected


@pytest.mark.parametrize(
    "model",
    [
        models.WordPiece({"[CLS]": 0, "[SEP]": 1, "在": 2}, unk_token="[UNK]"),
        models.WordLevel({"[CLS]": 0, "[SEP]": 1, "在": 2}, unk_token="[UNK]"),
        models.BPE({"[CLS]": 0, "[SEP]": 1, "在": 2}, []),
    ],
)
def test_vocabulary_without_latin_or_unknown_token_loads(model):
    tokenizer = Tokenizer(model)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    tokenizer = TokenizerJson(tokenizer.to_str().encode()).subword_tokenizer(100, 10)
    assert tokenizer([word_doc("在")]).ids.tolist() == [0, 2, 1]
    if not isinstance(model, models.BPE):
        with pytest.raises(UserError, match=r"tokenizer cannot tokenize a text: .*Missing \[UNK\] token"):
            tokenizer([word_doc("去")])
