"""Masks of allowed tags for the restrictions of texts, Docs and annotations."""

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
    allowed_nested_tags,
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


def test_white_space_does_not_begin_or_end_entities():
    assert possible_tags(make_units("OO"), LABELS) is None
    first, second = possible_tags(make_units("OO", space=" ."), LABELS)
    assert names_allowed(first) == {"O", "I-A", "I-B"}
    assert second.all()


def test_annotated_tag_is_the_only_agreeing_tag():
    units = make_units("B--", space=".. ")
    tags = encode_units(units, LABELS)
    single, free, space = agreeing_tags(tags, possible_tags(units, LABELS), LABELS.layout)
    assert names_allowed(single) == {"S-A"}
    assert free.all()
    assert names_allowed(space) == {"O", "I-A", "I-B"}


def test_agreeing_tags_do_not_modify_their_argument():
    units = make_units("O-", space="  ")
    possible = possible_tags(units, LABELS)
    before = possible.copy()
    agreeing_tags(encode_units(units, LABELS), possible, LABELS.layout)
    np.testing.assert_array_equal(possible, before)


@pytest.mark.parametrize("iob", ["---", "OOO", "-O-"])
def test_missing_and_outside_tags_do_not_restrict_prediction(iob):
    units = make_units(iob)
    assert intersect([possible_tags(units, LABELS), tags_within_sentences(units, LABELS)]) is None
    assert preset_tags(units, LABELS, None).all()


def test_existing_entities_and_blocked_tokens_are_kept():
    mask = preset_tags(make_units("BI-B", "BB.."), LABELS, None)
    assert [names_allowed(row) for row in mask] == [{"B-B"}, {"E-B"}, set(NAMES), {"O"}]


def test_existing_entities_may_break_rules_for_predicted_entities():
    units = make_units("BI", "AA", space="  ", starts=[1])
    limits = intersect([possible_tags(units, LABELS), tags_within_sentences(units, LABELS)])
    assert [names_allowed(row) for row in preset_tags(units, LABELS, limits)] == [{"B-A"}, {"E-A"}]


def test_entities_do_not_split_latin_words():
    views = [view_of(spacy.blank("zh").make_doc(text), "tokens") for text in ("Tex恤", "京")]
    first, inner, last, *others = tags_of_whole_words(views, LABELS)
    assert names_allowed(first) == {"B-A", "B-B", "I-A", "I-B", "O"}
    assert names_allowed(inner) == {"I-A", "I-B", "O"}
    assert names_allowed(last) == {"E-A", "E-B", "I-A", "I-B", "O"}
    assert np.all(others)
    exempt = tags_of_whole_words(views, LabelIndex(LABELS.hashes, within_words=[1]))
    assert names_allowed(exempt[1]) == {"B-B", "I-A", "I-B", "S-B", "E-B", "O"}
    assert tags_of_whole_words(views[1:], LABELS) is None


def test_entities_do_not_cross_sentence_starts():
    mask = tags_within_sentences(make_units("--", starts=[1]), LABELS)
    assert mask[0].all()
    assert names_allowed(mask[1]) == {"B-A", "B-B", "O", "S-A", "S-B"}


def test_nested_masks_allow_entities_inside_or_around_existing_ones():
    nlp = spacy.blank("zh")
    docs = [Doc(nlp.vocab, words=list("Te 天"), spaces=[False] * 4), nlp.make_doc("北京大学")]
    docs[0].set_ents([Span(docs[0], 1, 3, label="A")], blocked=[docs[0][3:4]], default="missing")
    labels = index_labels("AB")
    views = [view_of(doc, "tokens") for doc in docs]
    outside = np.full((2, 8), labels.layout.outside)
    outer, inner = allowed_nested_tags(views, labels, 2, lambda mask: outside)
    start = {"O", "B-A", "B-B"}  # No entity continues from before the text.
    assert [names_allowed(row) for row in outer[:4]] == [start, {"B-A"}, {"E-A"}, {"O"}]
    assert [names_allowed(row) for row in inner[:4]] == [start, {"O"}, {"O", "I-A", "I-B"}, {"O"}]
    assert outer[5:].all()
    assert inner[5:].all()
    docs[1].ents = [Span(docs[1], 0, 4, label="A")]
    docs[1].spans[NO_ENTITIES] = [docs[1][0:2]]
    _, inner = allowed_nested_tags(views[1:], labels, 2, lambda mask: outside[:, :4])
    assert [names_allowed(row) for row in inner] == [{"O"}, {"O"}, set(NAMES), set(NAMES)]
    # The best sequence at depth 0 has an entity around the existing one that starts with it.
    del docs[1].spans[NO_ENTITIES]
    docs[1].ents = [Span(docs[1], 0, 2, label="A")]
    best = np.stack([labels.layout.encode(*np.array([[0], [4], [1]]), 4), outside[0, :4]])
    outer, inner = allowed_nested_tags(views[1:], labels, 2, lambda mask: best)
    around = {"I-A", "I-B"}
    assert [names_allowed(row) for row in outer] == [{"B-A", "B-B"}, {"E-A"} | around, set(NAMES), set(NAMES)]
    assert names_allowed(inner[0]) == {"O", "B-A", "B-B", "S-A", "S-B"} == names_allowed(inner[2])
    # An entity around the existing one that ends with it.
    docs[1].ents = [Span(docs[1], 2, 4, label="A")]
    outer, _ = allowed_nested_tags(views[1:], labels, 2, lambda mask: best)
    assert [names_allowed(row) for row in outer[2:]] == [{"B-A"} | around, {"E-A", "E-B"} | around]


@given(st.text("BIO-", min_size=1, max_size=12), st.text(" .", min_size=12, max_size=12), st.data())
def test_every_annotation_allows_a_valid_tag_sequence(iob, space, data):
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
