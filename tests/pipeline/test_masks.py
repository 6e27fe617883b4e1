"""What the text, the Doc and annotation forbid, as masks of tags."""

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from paper_equations import allowed_transitions
from spacy.tokens import Doc, Span
from test_tags import LABELS, NAMES, make_units

from spacy_tener.pipeline.masks import (
    NO_ENTITIES,
    agreeing_tags,
    allowed_tags,
    intersect,
    possible_tags,
    preset_tags,
    tags_of_whole_words,
    tags_within_sentences,
)
from spacy_tener.pipeline.tags import LabelIndex, encode_units, index_labels, trim_space
from spacy_tener.pipeline.units import view_of


def names_allowed(row):
    return {name for name, allowed in zip(NAMES, row, strict=True) if allowed}


def test_white_space_is_outside_or_inside_and_no_edge():
    assert possible_tags(make_units("OO"), LABELS) is None
    first, second = possible_tags(make_units("OO", space=" ."), LABELS)
    assert names_allowed(first) == {"O", "I-A", "I-B"}
    assert second.all()


def test_known_tags_agree_with_themselves_alone():
    units = make_units("B--", space=".. ")
    tags = encode_units(units, LABELS)
    single, free, space = agreeing_tags(tags, possible_tags(units, LABELS), LABELS.layout)
    assert names_allowed(single) == {"S-A"}
    assert free.all()
    assert names_allowed(space) == {"O", "I-A", "I-B"}


def test_agreeing_tags_leave_the_mask_of_possible_ones_alone():
    units = make_units("O-", space="  ")
    possible = possible_tags(units, LABELS)
    before = possible.copy()
    agreeing_tags(encode_units(units, LABELS), possible, LABELS.layout)
    np.testing.assert_array_equal(possible, before)


@pytest.mark.parametrize("iob", ["---", "OOO", "-O-"])
def test_what_is_missing_or_outside_restricts_no_prediction(iob):
    units = make_units(iob)
    assert intersect([possible_tags(units, LABELS), tags_within_sentences(units, LABELS)]) is None
    assert preset_tags(units, LABELS, None).all()


def test_preset_entities_and_blocked_tokens_stay_in_prediction():
    mask = preset_tags(make_units("BI-B", "BB.."), LABELS, None)
    assert [names_allowed(row) for row in mask] == [{"B-B"}, {"E-B"}, set(NAMES), {"O"}]


def test_preset_entities_may_have_white_space_at_their_edges_and_cross_sentences():
    units = make_units("BI", "AA", space="  ", starts=[1])
    limits = intersect([possible_tags(units, LABELS), tags_within_sentences(units, LABELS)])
    assert [names_allowed(row) for row in preset_tags(units, LABELS, limits)] == [{"B-A"}, {"E-A"}]


def test_latin_words_stay_whole_in_prediction():
    views = [view_of(spacy.blank("zh").make_doc(text), "tokens") for text in ("Tex恤", "京")]
    first, inner, last, *others = tags_of_whole_words(views, LABELS)
    assert names_allowed(first) == {"B-A", "B-B", "I-A", "I-B", "O"}
    assert names_allowed(inner) == {"I-A", "I-B", "O"}
    assert names_allowed(last) == {"E-A", "E-B", "I-A", "I-B", "O"}
    assert np.all(others)
    exempt = tags_of_whole_words(views, LabelIndex(LABELS.hashes, within_words=[1]))
    assert names_allowed(exempt[1]) == {"B-B", "I-A", "I-B", "S-B", "E-B", "O"}
    assert tags_of_whole_words(views[1:], LABELS) is None


def test_nothing_goes_on_over_a_start_of_a_sentence():
    mask = tags_within_sentences(make_units("--", starts=[1]), LABELS)
    assert mask[0].all()
    assert names_allowed(mask[1]) == {"B-A", "B-B", "O", "S-A", "S-B"}


def test_what_a_doc_has_is_whole_at_the_first_depth_and_may_hold_others_at_the_next():
    nlp = spacy.blank("zh")
    docs = [Doc(nlp.vocab, words=list("Te 天"), spaces=[False] * 4), nlp.make_doc("北京大学")]
    docs[0].set_ents([Span(docs[0], 1, 3, label="A")], blocked=[docs[0][3:4]], default="missing")
    outer, inner = allowed_tags([view_of(doc, "tokens") for doc in docs], index_labels("AB"), 2)
    start = {"O", "B-A", "B-B"}  # nothing goes on at the begin of a text
    assert [names_allowed(row) for row in outer[:4]] == [start, {"B-A"}, {"E-A"}, {"O"}]
    assert [names_allowed(row) for row in inner[:4]] == [start, {"O"}, {"O", "I-A", "I-B"}, {"O"}]
    assert outer[5:].all()
    assert inner[5:].all()
    docs[1].ents = [Span(docs[1], 0, 4, label="A")]
    docs[1].spans[NO_ENTITIES] = [docs[1][0:2]]
    _, inner = allowed_tags([view_of(docs[1], "tokens")], index_labels("AB"), 2)
    assert [names_allowed(row) for row in inner] == [{"O"}, {"O"}, set(NAMES), set(NAMES)]


@given(st.text("BIO-", min_size=1, max_size=12), st.text(" .", min_size=12, max_size=12), st.data())
def test_whatever_is_annotated_some_path_is_left(iob, space, data):
    """An entity goes on only behind its beginning: every other pattern spaCy itself puts right."""
    iob = "".join("B" if mark == "I" and (i == 0 or iob[i - 1] not in "BI") else mark for i, mark in enumerate(iob))
    # A second I behind a B that was one: still an entity.
    starts = data.draw(st.lists(st.integers(0, len(iob) - 1), max_size=4))
    units = make_units(iob, space=space[: len(iob)], starts=starts)
    limits = intersect([possible_tags(units, LABELS), tags_within_sentences(units, LABELS)])
    for mask in (preset_tags(units, LABELS, limits), _agreeing(trim_space(units))):
        reachable = mask[0].copy()
        reachable[LABELS.layout.continuers] = False
        for row in mask[1:]:
            reachable = (reachable @ allowed_transitions(LABELS.layout)) & row
        assert reachable[LABELS.layout.closers].any()


def _agreeing(units):
    return agreeing_tags(encode_units(units, LABELS), possible_tags(units, LABELS), LABELS.layout)
