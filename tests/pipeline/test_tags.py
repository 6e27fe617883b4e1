"""spaCy's annotation as tags, and what it forbids as masks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_forms import allowed_transitions

from spacy_tener.pipeline.tags import (
    UNKNOWN,
    LabelIndex,
    agreeing_tags,
    decodable_tags,
    encode_units,
    keep_words_whole,
    possible_tags,
    trim_space,
)
from spacy_tener.pipeline.units import BEGIN, INSIDE, MISSING, OUTSIDE, SPACE, TEXT, Units

HASHES = [2**63 + 5, 11]
"""Hashes are 64 bits wide and unsigned."""
A, B = HASHES
LABELS = LabelIndex(HASHES)
NAMES = LABELS.layout.names(("A", "B"))
STRANGER = 99


def make_units(iob, labels=None, *, space="", starts=()):
    """Units from a line such as `BI-O`, and a line of spaces and dots."""
    codes = {"-": MISSING, "I": INSIDE, "O": OUTSIDE, "B": BEGIN}
    values = np.array([codes[letter] for letter in iob], dtype=np.int64)
    inside = (values == BEGIN) | (values == INSIDE)
    names = {"A": A, "B": B, "?": STRANGER, ".": 0}
    label = [names[name] for name in labels] if labels else [A if held else 0 for held in inside]
    return Units(
        kind=np.array([SPACE if mark == " " else TEXT for mark in (space or "." * len(iob))]),
        iob=values,
        label=np.array(label, dtype=np.uint64),
        sentence_start=np.isin(np.arange(len(iob)), list(starts)),
    )


def names_of(tags):
    return " ".join("-" if tag == UNKNOWN else NAMES[tag] for tag in tags)


def names_allowed(row):
    return {name for name, allowed in zip(NAMES, row, strict=True) if allowed}


@pytest.mark.parametrize(
    ("iob", "labels", "expected"),
    [
        ("O", None, "O"),
        ("B", None, "S-A"),
        ("BI", None, "B-A E-A"),
        ("BIII", None, "B-A I-A I-A E-A"),
        ("BB", "AB", "S-A S-B"),
        ("BIBI", "AABB", "B-A E-A B-B E-B"),
        ("-BI-", ".BB.", "- B-B E-B -"),
        ("B-", None, "S-A -"),
        ("BO-O", None, "S-A O - O"),
        ("BIOB", "??.A", "O O O S-A"),  # entities of other labels
        ("BO", "..", "O O"),  # blocked tokens
    ],
)
def test_entities_are_spelled_out_in_tags(iob, labels, expected):
    assert names_of(encode_units(make_units(iob, labels), LABELS)) == expected


def test_without_labels_everything_known_is_outside():
    assert encode_units(make_units("BI-O"), LabelIndex([])).tolist() == [0, 0, UNKNOWN, 0]


def test_no_units_have_no_tags():
    assert encode_units(make_units(""), LABELS).shape == (0,)
    assert decodable_tags(make_units(""), LABELS) is None


def test_hashes_are_found_by_their_whole_width():
    found = LABELS.indices(np.array([B, A, 0, A - 1, A % 2**32], dtype=np.uint64))
    assert found.tolist() == [1, 0, -1, -1, -1]


@pytest.mark.parametrize(
    ("iob", "space", "expected"),
    [
        ("BII", " ..", "O B-A E-A"),
        ("BII", ".. ", "B-A E-A O"),
        ("BII", ". .", "B-A I-A E-A"),
        ("BIIII", "  .  ", "O O S-A O O"),
        ("BII", "   ", "O O O"),
        ("BIBI", " . .", "O S-A O S-A"),
        ("-BI-", " .. ", "- B-A E-A -"),
        ("OBIO", " .. ", "O B-A E-A O"),
    ],
)
def test_white_space_is_trimmed_from_the_edges_of_entities(iob, space, expected):
    assert names_of(encode_units(trim_space(make_units(iob, space=space)), LABELS)) == expected


def test_trimming_changes_nothing_that_was_passed_and_copies_nothing_without_need():
    units = make_units("BI", space=" .")
    trim_space(units)
    assert units.iob.tolist() == [BEGIN, INSIDE]
    clean = make_units("OBI", space=" ..")
    assert trim_space(clean) is clean


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
    assert decodable_tags(make_units(iob, starts=[0]), LABELS) is None


def test_preset_entities_and_blocked_tokens_stay_in_prediction():
    mask = decodable_tags(make_units("BI-B", "BB.."), LABELS)
    assert [names_allowed(row) for row in mask] == [{"B-B"}, {"E-B"}, set(NAMES), {"O"}]


def test_preset_entities_may_have_white_space_at_their_edges_and_cross_sentences():
    mask = decodable_tags(make_units("BI", "AA", space="  ", starts=[1]), LABELS)
    assert [names_allowed(row) for row in mask] == [{"B-A"}, {"E-A"}]


def test_latin_words_stay_whole_in_prediction():
    neighbours = np.array([2, 3, 1, 0])
    first, inner, last, other = keep_words_whole(None, neighbours, LABELS)
    assert names_allowed(first) == {"B-A", "B-B", "I-A", "I-B", "O"}
    assert names_allowed(inner) == {"I-A", "I-B", "O"}
    assert names_allowed(last) == {"E-A", "E-B", "I-A", "I-B", "O"}
    assert other.all()
    exempt = keep_words_whole(None, neighbours, LabelIndex(LABELS.hashes, with_parts=[1]))
    assert names_allowed(exempt[1]) == {"B-B", "I-A", "I-B", "S-B", "E-B", "O"}
    preset = keep_words_whole(decodable_tags(make_units("-BI-"), LABELS), neighbours, LABELS)
    assert [names_allowed(row) for row in preset[1:3]] == [{"B-A"}, {"E-A"}]


def test_nothing_goes_on_over_a_start_of_a_sentence():
    mask = decodable_tags(make_units("--", starts=[0, 1]), LABELS)
    assert mask[0].all()
    assert names_allowed(mask[1]) == {"B-A", "B-B", "O", "S-A", "S-B"}


@given(st.text("BIO-", min_size=1, max_size=12), st.text(" .", min_size=12, max_size=12), st.data())
def test_whatever_is_annotated_some_path_is_left(iob, space, data):
    """An entity goes on only behind its beginning: every other pattern spaCy itself puts right."""
    iob = "".join("B" if mark == "I" and (i == 0 or iob[i - 1] not in "BI") else mark for i, mark in enumerate(iob))
    # A second I behind a B that was one: still an entity.
    starts = data.draw(st.lists(st.integers(0, len(iob) - 1), max_size=4))
    units = make_units(iob, space=space[: len(iob)], starts=starts)
    for mask in (decodable_tags(units, LABELS), _agreeing(trim_space(units))):
        reachable = np.ones(len(NAMES), dtype=bool) if mask is None else mask[0].copy()
        reachable[LABELS.layout.continuers] = False
        for row in [] if mask is None else mask[1:]:
            reachable = (reachable @ allowed_transitions(LABELS.layout)) & row
        assert reachable[LABELS.layout.closers].any()


def _agreeing(units):
    return agreeing_tags(encode_units(units, LABELS), possible_tags(units, LABELS), LABELS.layout)
