"""Test tag schemes: conversion of tags to spans, repair of invalid tag sequences, and detection of the scheme."""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from spacy_tener.corpora.annotation import EntitySpan, Event, RecordError
from spacy_tener.corpora.columns import SCHEMES, TagReader

SPANS = (EntitySpan(1, 2, "LOC"), EntitySpan(2, 5, "PER"), EntitySpan(6, 8, "PER"), EntitySpan(8, 9, "PER"))
TAGS = {
    "IOB2": "O B-LOC B-PER I-PER I-PER O B-PER I-PER B-PER O",
    "IOB1": "O I-LOC I-PER I-PER I-PER O I-PER I-PER B-PER O",
    "BIOES": "O S-LOC B-PER I-PER E-PER O B-PER E-PER S-PER O",
    "BMES": "O S-LOC B-PER M-PER E-PER O B-PER E-PER S-PER O",
    "BILOU": "O U-LOC B-PER I-PER L-PER O B-PER L-PER U-PER O",
}


def read_tags(tags: str, scheme: str = "auto") -> tuple[list[tuple[int, int, str]], int, TagReader]:
    reader = TagReader(scheme)
    spans, _ = reader.read(tags.split())
    return [(span.start, span.end, span.label) for span in spans], reader.repairs.counts[Event.REPAIRED], reader


def random_spans(rng: random.Random, length: int) -> list[EntitySpan]:
    spans, position = [], 0
    while position < length:
        end = min(length, position + rng.randint(1, 4))
        if rng.random() < 0.6:
            spans.append(EntitySpan(position, end, rng.choice(["PER", "GPE.NAM", "x-y"])))
        position = end
    return spans


def spans_to_tags(spans: Iterable[EntitySpan], length: int, *, scheme: str) -> list[str]:
    """Return the tags of a sentence with `length` tokens. Entities must not overlap."""
    first, inner, last, single = SCHEMES[scheme]
    tags = ["O"] * length
    previous = EntitySpan(-1, -1, "")
    for span in spans:
        letters = single if span.end - span.start == 1 else first + inner * (span.end - span.start - 2) + last
        if scheme == "IOB1" and previous.end == span.start and previous.label == span.label:
            letters = "B" + letters[1:]
        tags[span.start : span.end] = [f"{letter}-{span.label}" for letter in letters]
        previous = span
    return tags


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("is_explicit", [True, False])
def test_valid_tags_are_decoded_without_repair(scheme: str, is_explicit: bool) -> None:
    rng = random.Random(scheme)
    reader = TagReader(scheme if is_explicit else "auto")
    # The scheme can be detected from these entities of one and three tokens, and adjacent entities of one label.
    assert reader.read(TAGS[scheme].split())[0] == SPANS
    for _ in range(200):
        spans = random_spans(rng, rng.randint(0, 12))
        length = max((span.end for span in spans), default=0) + rng.randint(0, 2)
        assert reader.read(spans_to_tags(spans, length, scheme=scheme))[0] == tuple(spans)
    assert reader.scheme == scheme
    assert reader.repairs.counts.total() == 0


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O I-A I-A", [(1, 3, "A")]),
        ("I-A O", [(0, 1, "A")]),
        ("B-A I-B I-B", [(0, 1, "A"), (1, 3, "B")]),
        ("B-A I-A I-B", [(0, 2, "A"), (2, 3, "B")]),
    ],
)
def test_inside_tag_after_outside_or_other_label_starts_entity(tags: str, spans: list[tuple[int, int, str]]) -> None:
    found, repaired, _ = read_tags(tags, "IOB2")
    assert found == spans
    assert repaired == 1


@pytest.mark.parametrize(
    ("tags", "spans", "repaired"),
    [
        ("O E-A O", [(1, 2, "A")], 1),
        ("M-A E-A", [(0, 2, "A")], 1),
        ("S-A M-A E-A", [(0, 1, "A"), (1, 3, "A")], 1),
        ("B-A E-A E-A", [(0, 2, "A"), (2, 3, "A")], 1),
        ("B-A O", [(0, 1, "A")], 1),
        ("B-A M-A", [(0, 2, "A")], 1),
        ("B-A B-A E-A", [(0, 1, "A"), (1, 3, "A")], 1),
        ("B-A E-B", [(0, 1, "A"), (1, 2, "B")], 2),
        ("B-A M-A S-A", [(0, 2, "A"), (2, 3, "A")], 1),
    ],
)
def test_invalid_bmes_tags_are_repaired_and_counted(
    tags: str, spans: list[tuple[int, int, str]], repaired: int
) -> None:
    assert read_tags(tags, "BMES")[:2] == (spans, repaired)


def test_repair_message_names_line_and_tags() -> None:
    reader = TagReader("IOB2")
    reader.read(["O", "I-PER", "I-ORG"], line=40)
    reader.read(["I-PER"], line=50)
    assert reader.repairs.examples[Event.REPAIRED] == [
        "line 41: I-PER after O begins an entity",
        "line 42: I-ORG after I-PER begins an entity",
        "line 50: I-PER at the start of a sentence begins an entity",
    ]


def test_iob1_counts_unneeded_begin_tag_as_repair() -> None:
    assert read_tags("O I-A I-A B-A O", "IOB1")[:2] == ([(1, 3, "A"), (3, 4, "A")], 0)
    assert read_tags("O B-A I-A", "IOB1")[:2] == ([(1, 3, "A")], 1)


@pytest.mark.parametrize(
    ("tags", "scheme", "repaired"),
    [
        ("O B-A I-A O B-A O B-A I-B", "IOB2", 1),
        ("O I-A I-A O I-A O I-A B-A", "IOB1", 0),
        ("B-A I-A O B-A O I-A", "IOB2", 1),
        ("O B-A", "IOB2", 0),
        ("O I-A", "IOB1", 0),
        ("B-A E-A S-A B-A M-A E-A", "BMES", 0),
        ("B-A E-A S-A B-A I-A E-A", "BIOES", 0),
        ("B-A E-A S-A", "BIOES", 0),
        ("U-A O", "BILOU", 0),
        ("B-A I-A O S-A", "BIOES", 1),
    ],
)
def test_scheme_is_detected_from_prefixes(tags: str, scheme: str, repaired: int) -> None:
    _, counted, reader = read_tags(tags)
    assert (reader.scheme, counted) == (scheme, repaired)


def test_scheme_is_undetected_without_entities() -> None:
    assert read_tags("O O O")[2].scheme is None
    assert read_tags("O O O", "BMES")[2].scheme == "BMES"


def test_entities_are_independent_of_given_scheme() -> None:
    tags = "O I-A B-A I-A I-B O B-B B-B I-A"
    assert read_tags(tags, "IOB1")[0] == read_tags(tags, "IOB2")[0] == read_tags(tags, "BIOES")[0] == read_tags(tags)[0]


def test_labels_can_contain_hyphens_dots_and_chinese() -> None:
    found, _, _ = read_tags("B-creative-work I-creative-work B-PER.NAM B-人名 B_nr I_nr")
    assert found == [(0, 2, "creative-work"), (2, 3, "PER.NAM"), (3, 4, "人名"), (4, 6, "nr")]


def test_hyphen_marks_token_without_annotation() -> None:
    reader = TagReader()
    spans, missing = reader.read(["B-A", "-", "I-A", "-", "O"])
    assert spans == (EntitySpan(0, 1, "A"), EntitySpan(2, 3, "A"))
    assert missing == (1, 3)


@pytest.mark.parametrize("tag", ["", "o", "PER", "B-", "B", "X-PER", "B PER", "b-PER", "--", "O-PER"])
def test_invalid_tag_raises_error_with_line_number(tag: str) -> None:
    with pytest.raises(RecordError, match="is not a tag") as caught:
        TagReader().read(["O", tag], line=7)
    assert caught.value.line == 8


def test_prefixes_of_two_schemes_raise_error_with_line_number() -> None:
    with pytest.raises(RecordError, match=r"^tag 'L-A' does not belong to the scheme BMES.*\(B, M\)") as caught:
        TagReader().read(["B-A", "M-A", "O", "L-A"])
    assert caught.value.line == 4


@pytest.mark.parametrize(("name", "scheme"), [("BIO", "IOB2"), ("bio", "IOB2"), ("iob", "IOB1"), ("IOBES", "BIOES")])
def test_scheme_aliases_are_accepted(name: str, scheme: str) -> None:
    spans, repairs, reader = read_tags(TAGS[scheme], name)
    assert (reader.scheme, repairs) == (scheme, 0)
    assert spans == [(span.start, span.end, span.label) for span in SPANS]
