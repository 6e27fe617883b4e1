"""Views of Docs as units: tokens, or characters regardless of the tokens."""

import re

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span, Token

from spacy_tener.pipeline.units import (
    BEGIN,
    INSIDE,
    MISSING,
    OUTSIDE,
    CharacterView,
    TokenView,
    letter_neighbours,
    view_of,
)


@pytest.fixture
def vocab():
    return spacy.blank("zh").vocab


@pytest.fixture
def segmented(vocab):
    """A Doc of words, two of them followed by a space: 中国 |银行|在 |北京"""
    doc = Doc(vocab, words=["中国", "银行", "在", "北京"], spaces=[True, False, True, False])
    doc.set_ents([Span(doc, 0, 2, "ORG")], missing=[doc[2:3]], default="outside")
    return doc


def iob_of(units):
    return units.iob.tolist()


def test_token_view_returns_annotation_of_tokens(segmented):
    units = TokenView(segmented).units()
    assert iob_of(units) == [BEGIN, INSIDE, MISSING, OUTSIDE]
    assert units.label[0] == segmented.vocab.strings["ORG"]
    assert not units.space.any()


def test_character_view_continues_entity_over_spaces(segmented):
    units = CharacterView(segmented).units()
    # 中 国 _ 银 行 在 _ 北 京
    assert iob_of(units) == [BEGIN, INSIDE, INSIDE, INSIDE, INSIDE, MISSING, MISSING, OUTSIDE, OUTSIDE]
    assert units.space.tolist() == [False, False, True, False, False, False, True, False, False]
    assert [segmented.vocab.strings[int(label)] for label in units.label[:5]] == ["ORG"] * 5
    assert not units.label[5:].any()


def test_space_after_entity_is_outside(vocab):
    doc = Doc(vocab, words=["北京", "好"], spaces=[True, False])
    doc.ents = [Span(doc, 0, 1, "GPE")]
    units = CharacterView(doc).units()
    assert iob_of(units) == [BEGIN, INSIDE, OUTSIDE, OUTSIDE]
    assert units.label[2] == 0


def test_blocked_token_blocks_all_characters(vocab):
    doc = Doc(vocab, words=["北京", "好"], spaces=[False, False])
    doc.set_ents([], blocked=[doc[0:1]], default="missing")
    assert iob_of(CharacterView(doc).units()) == [BEGIN, BEGIN, MISSING]
    assert not CharacterView(doc).units().label.any()


def test_sentence_start_is_marked_on_first_character(vocab):
    doc = Doc(vocab, words=["你好", "世界"], spaces=[False, False], sent_starts=[True, True])
    assert CharacterView(doc).units().sentence_start.tolist() == [True, False, True, False]


def test_doc_of_single_characters_uses_token_view():
    nlp = spacy.blank("zh")
    doc = nlp("你好😀世界")
    assert isinstance(view_of(doc, "characters"), TokenView)
    assert view_of(doc, "characters").slice_doc(0, len(doc)) is doc
    assert isinstance(view_of(nlp("你 好"), "characters"), CharacterView)


@pytest.mark.parametrize("view", ["tokens", "characters"])
def test_view_is_unrestricted_only_without_constraints(vocab, view):
    def is_unrestricted_view(*words, **annotation):
        return view_of(Doc(vocab, words=words, spaces=[False] * len(words), **annotation), view).is_unrestricted

    assert is_unrestricted_view("你", "好")
    assert not is_unrestricted_view("你", "\n", "好")
    assert not is_unrestricted_view("你", "好", ents=["B-X", "O"])
    assert not is_unrestricted_view("你", "好", ents=["O", "O"])
    assert not is_unrestricted_view("你", "好", sent_starts=[True, True])
    assert view_of(Doc(vocab, words=["你", "好"], spaces=[True, False]), view).is_unrestricted == (view == "tokens")


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_empty_and_white_space_docs_have_views(text):
    doc = spacy.blank("zh")(text)
    for view in ("tokens", "characters"):
        units = view_of(doc, view).units()
        assert units.space.all()
        assert len(units.iob) == len(view_of(doc, view))


def test_character_slice_has_single_token_per_code_point(segmented, vocab):
    assert [token.text for token in CharacterView(segmented).slice_doc(1, 4)] == ["国", " ", "银"]
    doc = Doc(vocab, words=["😀𠮷", "好"], spaces=[False, False])
    view = CharacterView(doc)
    assert [token.text for token in view.slice_doc(0, len(view))] == ["😀", "𠮷", "好"]


def test_token_slice_copies_only_partial_docs(segmented):
    view = TokenView(segmented)
    assert view.slice_doc(0, 4) is segmented
    assert [token.text for token in view.slice_doc(1, 3)] == ["银行", "在"]


ATTRIBUTES = ["LEMMA", "TAG", "POS", "MORPH", "DEP", "ENT_TYPE", "ENT_IOB", "ENT_ID", "ENT_KB_ID", "SENT_START", "NORM"]


def test_slice_keeps_token_attributes_and_tensor(vocab):
    n = 12
    doc = Doc(
        vocab,
        words=[f"w{i}" for i in range(n)],
        spaces=[i % 3 > 0 for i in range(n)],
        tags=[f"T{i}" for i in range(n)],
        pos=["NOUN", "VERB"] * 6,
        morphs=[f"Case={i}" for i in range(n)],
        lemmas=[f"l{i}" for i in range(n)],
        deps=[f"d{i}" for i in range(n)],
        sent_starts=[i in (0, 5) for i in range(n)],
    )
    doc.set_ents([Span(doc, 2, 6, "ORG", kb_id="Q1", span_id="7")], blocked=[doc[7:8]], missing=[doc[9:10]])
    doc.tensor = np.arange(3 * n).reshape(n, 3)
    slice_of_doc = TokenView(doc).slice_doc(4, 10)
    expected = doc.to_array(ATTRIBUTES)[4:10]
    # As in spaCy's Span.as_doc(), an entity that is cut at the start of a slice begins with its first token.
    expected[0, ATTRIBUTES.index("ENT_IOB")] = BEGIN
    np.testing.assert_array_equal(slice_of_doc.to_array(ATTRIBUTES), expected)
    np.testing.assert_array_equal(slice_of_doc.tensor, doc.tensor[4:10])
    assert [(ent.start, ent.end, ent.kb_id_, ent.id_) for ent in slice_of_doc.ents] == [(0, 2, "Q1", "7")]
    assert slice_of_doc.text == doc[4:10].text


@pytest.fixture
def extensions():
    for doc_or_token in (Doc, Token):
        doc_or_token.set_extension("note", default=None)
    yield
    for doc_or_token in (Doc, Token):
        doc_or_token.remove_extension("note")


@pytest.mark.usefixtures("extensions")
@pytest.mark.parametrize("view", [TokenView, CharacterView])
def test_slice_keeps_user_data_of_doc_but_not_of_tokens(vocab, view):
    doc = Doc(vocab, words=list("甲乙丙丁戊己"), spaces=[True, False] * 3)
    doc._.note, doc.user_data["key"] = "doc", 1
    doc[2]._.note = "token"
    slice_of_doc = view(doc).slice_doc(2, 5)
    assert (slice_of_doc._.note, slice_of_doc.user_data["key"]) == ("doc", 1)
    assert [token._.note for token in slice_of_doc] == [None] * 3
    slice_of_doc._.note = "changed"
    assert doc._.note == "doc"


def test_token_span_agrees_with_spacy_char_span(segmented):
    view = CharacterView(segmented)
    for start in range(len(view)):
        for end in range(start + 1, len(view) + 1):
            if segmented.text[start] == " " or segmented.text[end - 1] == " ":
                continue
            for mode in ("expand", "contract", "strict"):
                expected = segmented.char_span(start, end, alignment_mode=mode)
                first, last = view.token_span(start, end, mode)
                if expected is None or len(expected) == 0:
                    assert first >= last, (start, end, mode)
                else:
                    assert (first, last) == (expected.start, expected.end), (start, end, mode)


def test_sentence_ends_are_found_in_both_views(vocab):
    doc = Doc(vocab, words=["你好", "。", "再见", "！", "Bye", "."], spaces=[False] * 6)
    assert TokenView(doc).sentence_ends().tolist() == [False, True, False, True, False, True]
    assert np.flatnonzero(CharacterView(doc).sentence_ends()).tolist() == [2, 5, 9]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3.14", []),
        ("in the U.S. today.", [10, 17]),
        ("a. b.c. d", [1, 6]),
        ("他来了.我走了.", [3, 7]),
        ("３.１４.", [4]),
        (".", [0]),
    ],
)
def test_full_stop_before_letter_or_digit_ends_no_sentence(text, expected):
    doc = spacy.blank("zh")(text)
    tokens = TokenView(doc)
    assert [tokens.char_span(i, i + 1)[0] for i in np.flatnonzero(tokens.sentence_ends())] == expected
    assert np.flatnonzero(CharacterView(doc).sentence_ends()).tolist() == expected
    spaces = [False] * len(text)
    characters = TokenView(Doc(doc.vocab, words=list(text), spaces=spaces))
    assert np.flatnonzero(characters.sentence_ends()).tolist() == expected


@pytest.mark.parametrize("between", ["\n", "\n\n", "\r\n", "\n\u3000\u3000", " \n"])
def test_line_break_ends_sentence(between):
    doc = spacy.blank("zh")(f"张三 李四{between}王五")
    after_ends = np.flatnonzero(TokenView(doc).sentence_ends()) + 1
    assert [doc[int(token) :].text for token in after_ends] == ["王五"]
    assert not TokenView(spacy.blank("zh")("张三\u3000\u3000李四")).sentence_ends().any()


def test_annotated_sentence_start_ends_previous_sentence(vocab):
    doc = Doc(vocab, words=["你好", "再见"], spaces=[False] * 2, sent_starts=[True, True])
    assert TokenView(doc).sentence_ends().tolist() == [True, False]


def test_latin_word_continuations_are_found_in_both_views(vocab):
    text = "我在AppleStoreＡｂ,é2x T恤 T Ж"
    expected = [bool(re.fullmatch("[A-Za-zＡｂé]{2}", text[max(i - 1, 0) : i + 1])) for i in range(len(text))]
    assert sum(expected) == 11
    characters = spacy.blank("zh").make_doc(text)
    assert CharacterView(characters).word_continuations.tolist() == expected
    tokens = TokenView(characters).word_continuations
    assert [expected[token.idx] for token in characters] == tokens.tolist()
    words = Doc(vocab, words=["Apple", "Store"], spaces=[False, False])
    assert TokenView(words).word_continuations is None
    views = [TokenView(words), CharacterView(words), TokenView(Doc(vocab))]
    assert letter_neighbours(views).tolist() == [0, 0, 2, *[3] * 8, 1]
    assert letter_neighbours([TokenView(spacy.blank("zh").make_doc("T恤 T T"))]) is None
