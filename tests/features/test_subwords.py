"""Word subwords: which of them each token has, and the windows in which a transformer reads them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from tiny_transformer import POSITIONS, VOCAB, VOCABULARY, characters, save_tiny_transformer
from tokenizers import Tokenizer, models, processors

from spacy_tener.errors import RemedyError
from spacy_tener.features.subwords import SubwordBatch, SubwordTokenizer, TokenizerJson, align, overlapping_windows

CLS, SEP = "[CLS]", "[SEP]"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = save_tiny_transformer(tmp_path_factory.mktemp("bert"))
    return TokenizerJson((folder / "tokenizer.json").read_bytes()).subword_tokenizer(POSITIONS, 5)


def words(text: str) -> Doc:
    return spacy.blank("en")(text)


def names_of(found: SubwordBatch) -> list[str]:
    return [VOCABULARY[subword] for subword in found.ids.tolist()]


def subwords_of_tokens(tokenizer: SubwordTokenizer, *docs: Doc) -> list[tuple[str, list[str]]]:
    """Each token with its subwords."""
    found = tokenizer(docs)
    names = names_of(found)
    tokens = [token.text for doc in docs for token in doc]
    assert found.n_tokens == len(tokens)
    assert found.tokens.tolist() == sorted(found.tokens)
    names_of_tokens = [[names[row] for row in found.indices[found.tokens == i]] for i in range(len(tokens))]
    return list(zip(tokens, names_of_tokens, strict=True))


def test_digits_and_letters_share_the_pieces_that_cover_them(tokenizer):
    digits = [(digit, ["2023"]) for digit in "2023"]
    phone = [(letter, ["iphone"]) for letter in "iPhone"]
    found = subwords_of_tokens(tokenizer, characters("2023在iPhones去龘😀"))
    unknown = [("龘", ["[UNK]"]), ("😀", ["[UNK]"])]
    assert found == [*digits, ("在", ["在"]), *phone, ("s", ["##s"]), ("去", ["去"]), *unknown]


def test_a_word_has_all_its_pieces(tokenizer):
    assert subwords_of_tokens(tokenizer, words("John's iPhonesx rained.")) == [
        ("John", ["john"]),
        ("'s", ["[UNK]", "s"]),
        ("iPhonesx", ["iphone", "##s", "##x"]),
        ("rained", ["rained"]),
        (".", ["."]),
    ]


def test_white_space_and_control_characters_have_no_piece(tokenizer):
    found = subwords_of_tokens(tokenizer, characters("吴 \n\u200b\x07\u3000在"))
    assert found == [("吴", ["吴"]), *((c, []) for c in " \n\u200b\x07\u3000"), ("在", ["在"])]


def test_accents_that_the_tokenizer_strips_do_not_shift_what_follows(tokenizer):
    decomposed = "jo\u0308hn去"
    assert [subwords for _, subwords in subwords_of_tokens(tokenizer, characters(decomposed))] == [["john"]] * 5 + [
        ["去"]
    ]
    assert subwords_of_tokens(tokenizer, words("Jöhn rained")) == [("Jöhn", ["john"]), ("rained", ["rained"])]


def test_the_tokens_do_not_change_the_pieces(tokenizer):
    text = "吴重阳 bought 2023 iPhones 去"
    one_token = Doc(VOCAB, words=[text], spaces=[False])
    for doc in (characters(text), words(text)):
        np.testing.assert_array_equal(tokenizer([doc]).ids, tokenizer([one_token]).ids)


def test_texts_of_a_batch_are_kept_apart(tokenizer):
    docs = [characters("吴重"), characters(""), words("   "), words("new york"), characters("20")]
    alone = [pair for doc in docs for pair in subwords_of_tokens(tokenizer, doc)]
    assert subwords_of_tokens(tokenizer, *docs) == alone
    assert tokenizer(docs).lengths.tolist() == [4, 4, 3]


def test_each_window_has_the_special_pieces_around_it(tokenizer):
    found = tokenizer([characters("吴重阳" * 40), characters("在")])
    names = names_of(found)
    ends = np.cumsum(found.lengths)
    assert {names[end - length] for end, length in zip(ends, found.lengths, strict=True)} == {CLS}
    assert {names[end - 1] for end in ends} == {SEP}
    assert max(found.lengths) == POSITIONS


def test_a_long_text_is_read_in_windows_without_losing_a_piece(tokenizer):
    text = "吴重阳在中国银行工作2023" * 30
    found = subwords_of_tokens(tokenizer, characters(text))
    assert found == [(c, [c] if c not in "2023" else ["2023"]) for c in text]


def test_a_token_longer_than_a_window_has_all_its_pieces(tokenizer):
    long_word = "吴" * 100
    ((_, subwords),) = subwords_of_tokens(tokenizer, Doc(VOCAB, words=[long_word]))
    assert subwords == list(long_word)


def test_a_process_that_is_forked_after_texts_were_split_hears_no_warning(tmp_path):
    """In a process of its own: other tests split batches, after which tokenizers warns."""
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
def test_each_piece_is_read_where_it_has_context_on_both_sides(n_subwords, size, overlap):
    starts, window_indices = overlapping_windows(n_subwords, size=size, overlap=overlap)
    assert len(window_indices) == n_subwords
    assert len(starts) == (0 if n_subwords == 0 else 1) or n_subwords > size
    ends = starts + min(size, n_subwords)
    assert starts.size == 0 or (starts[0], ends[-1]) == (0, n_subwords)
    for subword, window in enumerate(window_indices):
        assert starts[window] <= max(subword - overlap, 0)
        assert min(subword + overlap + 1, n_subwords) <= ends[window]


@pytest.mark.parametrize("n_subwords", [21, 100, 999])
def test_there_is_no_window_more_than_the_context_asks_for(n_subwords):
    starts, _ = overlapping_windows(n_subwords, size=20, overlap=5)
    assert (len(starts) - 1) * 10 + 10 < n_subwords <= len(starts) * 10 + 10


@pytest.mark.parametrize("seed", range(5))
def test_alignment_is_that_of_all_pairs_compared(seed):
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
def test_a_vocabulary_without_latin_letters_or_an_unknown_piece_is_read(model):
    tokenizer = Tokenizer(model)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 1), ("[CLS]", 0))
    tokenizer = TokenizerJson(tokenizer.to_str().encode()).subword_tokenizer(100, 10)
    assert tokenizer([words("在")]).ids.tolist() == [0, 2, 1]
    if not isinstance(model, models.BPE):
        with pytest.raises(RemedyError, match=r"The tokenizer cannot split a text: .*Missing \[UNK\] token"):
            tokenizer([words("去")])
