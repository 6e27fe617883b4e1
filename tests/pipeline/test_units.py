"""What the component reads of a Doc: tokens, or characters whatever the tokens are."""

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc, Span

from spacy_tener.pipeline.units import BEGIN, INSIDE, MISSING, OUTSIDE, CharacterView, TokenView, view_of


@pytest.fixture
def vocab():
    return spacy.blank("zh").vocab


@pytest.fixture
def segmented(vocab):
    """Words, one of them followed by a space: 中国 银行|在 |北京"""
    doc = Doc(vocab, words=["中国", "银行", "在", "北京"], spaces=[True, False, True, False])
    doc.set_ents([Span(doc, 0, 2, "ORG")], missing=[doc[2:3]], default="outside")
    return doc


def iob_of(units):
    return units.iob.tolist()


def test_tokens_are_seen_as_spacy_marks_them(segmented):
    units = TokenView(segmented).units()
    assert iob_of(units) == [BEGIN, INSIDE, MISSING, OUTSIDE]
    assert units.label[0] == segmented.vocab.strings["ORG"]
    assert not units.space.any()


def test_characters_carry_on_their_tokens_entity_through_the_space_inside_it(segmented):
    units = CharacterView(segmented).units()
    # 中 国 _ 银 行 在 _ 北 京
    assert iob_of(units) == [BEGIN, INSIDE, INSIDE, INSIDE, INSIDE, MISSING, MISSING, OUTSIDE, OUTSIDE]
    assert units.space.tolist() == [False, False, True, False, False, False, True, False, False]
    assert [segmented.vocab.strings[int(label)] for label in units.label[:5]] == ["ORG"] * 5
    assert not units.label[5:].any()


def test_the_space_behind_an_entity_is_outside(vocab):
    doc = Doc(vocab, words=["北京", "好"], spaces=[True, False])
    doc.ents = [Span(doc, 0, 1, "GPE")]
    units = CharacterView(doc).units()
    assert iob_of(units) == [BEGIN, INSIDE, OUTSIDE, OUTSIDE]
    assert units.label[2] == 0


def test_a_blocked_token_blocks_all_its_characters(vocab):
    doc = Doc(vocab, words=["北京", "好"], spaces=[False, False])
    doc.set_ents([], blocked=[doc[0:1]], default="missing")
    assert iob_of(CharacterView(doc).units()) == [BEGIN, BEGIN, MISSING]
    assert not CharacterView(doc).units().label.any()


def test_sentence_starts_are_those_of_the_first_character(vocab):
    doc = Doc(vocab, words=["你好", "世界"], spaces=[False, False], sent_starts=[True, True])
    assert CharacterView(doc).units().sentence_start.tolist() == [True, False, True, False]


def test_a_doc_whose_tokens_are_its_characters_is_its_own_view():
    nlp = spacy.blank("zh")
    doc = nlp("你好😀世界")
    assert isinstance(view_of(doc, "characters"), TokenView)
    assert view_of(doc, "characters").piece(0, len(doc)) is doc
    assert isinstance(view_of(nlp("你 好"), "characters"), CharacterView)


@pytest.mark.parametrize("text", ["", " ", "\n\n"])
def test_docs_without_text_have_a_view(text):
    doc = spacy.blank("zh")(text)
    for view in ("tokens", "characters"):
        units = view_of(doc, view).units()
        assert units.space.all()
        assert len(units.iob) == len(view_of(doc, view))


def test_a_piece_of_characters_has_one_token_for_each_even_beyond_the_basic_plane(segmented, vocab):
    assert [token.text for token in CharacterView(segmented).piece(1, 4)] == ["国", " ", "银"]
    doc = Doc(vocab, words=["😀𠮷", "好"], spaces=[False, False])
    view = CharacterView(doc)
    assert [token.text for token in view.piece(0, len(view))] == ["😀", "𠮷", "好"]


def test_a_piece_of_tokens_is_the_doc_itself_or_a_copy_of_a_part(segmented):
    view = TokenView(segmented)
    assert view.piece(0, 4) is segmented
    assert [token.text for token in view.piece(1, 3)] == ["银行", "在"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("expand", (0, 2)), ("contract", (1, 2)), ("strict", None)],
)
def test_entities_inside_a_token_are_aligned_as_the_mode_says(segmented, mode, expected):
    # 国 银行: starts inside the first token.
    start, end = CharacterView(segmented).token_span(1, 5, mode)
    assert (start, end) == expected if expected else start == end


@pytest.mark.parametrize("mode", ["expand", "contract", "strict"])
def test_entities_on_token_edges_are_exact_in_every_mode(segmented, mode):
    assert CharacterView(segmented).token_span(0, 5, mode) == (0, 2)
    assert CharacterView(segmented).token_span(7, 9, mode) == (3, 4)


def test_an_entity_smaller_than_its_token_is_left_out_or_expanded(segmented):
    view = CharacterView(segmented)
    assert view.token_span(7, 8, "expand") == (3, 4)
    for mode in ("contract", "strict"):
        start, end = view.token_span(7, 8, mode)
        assert start == end


def test_every_stretch_of_characters_agrees_with_spacys_own_alignment(segmented):
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


def test_sentence_ends_are_seen_in_both_views(vocab):
    doc = Doc(vocab, words=["你好", "。", "再见", "！"], spaces=[False] * 4)
    assert TokenView(doc).sentence_ends().tolist() == [False, True, False, True]
    assert np.flatnonzero(CharacterView(doc).sentence_ends()).tolist() == [2, 5]


def test_known_sentence_starts_end_the_sentence_before_them(vocab):
    doc = Doc(vocab, words=["你好", "再见"], spaces=[False] * 2, sent_starts=[True, True])
    assert TokenView(doc).sentence_ends().tolist() == [True, False]
