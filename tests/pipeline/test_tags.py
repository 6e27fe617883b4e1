"""Encode the entity annotation of spaCy as tags."""

import numpy as np
import pytest

from spacy_tener.pipeline.tags import UNKNOWN, LabelIndex, encode_units, trim_space
from spacy_tener.pipeline.units import BEGIN, INSIDE, MISSING, OUTSIDE, SPACE, TEXT, Units

# Hashes are unsigned 64-bit integers.
HASHES = [2**63 + 5, 11]
A, B = HASHES
LABELS = LabelIndex(HASHES)
NAMES = LABELS.layout.names(("A", "B"))
UNKNOWN_LABEL = 99


def make_units(iob, labels=None, *, space="", starts=()):
    """Create units from IOB codes such as `BI-O`. In `space`, units are white space or dots."""
    codes = {"-": MISSING, "I": INSIDE, "O": OUTSIDE, "B": BEGIN}
    values = np.array([codes[letter] for letter in iob], dtype=np.int64)
    inside = (values == BEGIN) | (values == INSIDE)
    names = {"A": A, "B": B, "?": UNKNOWN_LABEL, ".": 0}
    label = [names[name] for name in labels] if labels else [A if is_inside else 0 for is_inside in inside]
    return Units(
        unit_type=np.array([SPACE if mark == " " else TEXT for mark in (space or "." * len(iob))]),
        iob=values,
        label=np.array(label, dtype=np.uint64),
        sentence_start=np.isin(np.arange(len(iob)), list(starts)),
    )


def names_of(tags):
    return " ".join("-" if tag == UNKNOWN else NAMES[tag] for tag in tags)


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
        ("BIOB", "??.A", "O O O S-A"),  # entities with unknown labels
        ("BO", "..", "O O"),  # blocked tokens
    ],
)
def test_entities_are_encoded_as_bioes_tags(iob, labels, expected):
    assert names_of(encode_units(make_units(iob, labels), LABELS)) == expected


def test_empty_label_index_encodes_entities_as_outside():
    assert encode_units(make_units("BI-O"), LabelIndex([])).tolist() == [0, 0, UNKNOWN, 0]


def test_empty_units_give_empty_tags():
    assert encode_units(make_units(""), LABELS).shape == (0,)


def test_label_lookup_compares_full_64_bit_hashes():
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
def test_white_space_is_trimmed_from_entity_boundaries(iob, space, expected):
    assert names_of(encode_units(trim_space(make_units(iob, space=space)), LABELS)) == expected


def test_trim_space_keeps_input_and_avoids_copies():
    units = make_units("BI", space=" .")
    trim_space(units)
    assert units.iob.tolist() == [BEGIN, INSIDE]
    clean = make_units("OBI", space=" ..")
    assert trim_space(clean) is clean
