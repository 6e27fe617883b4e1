"""Conversion of spans to BIOES tags and back, and the layout of the tags."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_equations import allowed_transitions

from spacy_tener.tagging import TagLayout

LABEL_COUNTS = [0, 1, 2, 5]


@st.composite
def annotations(draw):
    """A layout for a number of labels, the length of a sequence, and entities that do not overlap."""
    n_labels = draw(st.integers(1, 4))
    length = draw(st.integers(0, 12))
    edges = draw(st.lists(st.integers(0, length), unique=True, max_size=length + 1).map(sorted))
    between = list(pairwise(edges))
    spans = [span for span in between if draw(st.booleans())]
    labels = [draw(st.integers(0, n_labels - 1)) for _ in spans]
    columns = [[start for start, _ in spans], [end for _, end in spans], labels]
    return TagLayout(n_labels), length, [np.array(column, dtype=np.int64) for column in columns]


@given(annotations())
def test_decode_inverts_encode(annotation):
    layout, length, spans = annotation
    tags = layout.encode(*spans, length)
    assert tags.shape == (length,)
    for found, expected in zip(layout.decode(tags), spans, strict=True):
        assert found.tolist() == expected.tolist()


@given(annotations())
def test_encoded_tags_follow_allowed_transitions(annotation):
    layout, length, spans = annotation
    tags = layout.encode(*spans, length)
    assert allowed_transitions(layout)[tags[:-1], tags[1:]].all()
    all_tags = np.arange(layout.n_tags)
    assert set(tags[:1]) <= set(all_tags[layout.openers])
    assert set(tags[-1:]) <= set(all_tags[layout.closers])


@given(annotations(), annotations())
def test_concatenated_sequences_decode_to_concatenated_spans(first, second):
    layout = TagLayout(4)
    parts = [layout.encode(*spans, length) for _, length, spans in (first, second)]
    expected = [np.concatenate([a, b]) for a, b in zip(first[2], second[2], strict=True)]
    for column in expected[:2]:
        column[len(first[2][0]) :] += first[1]
    for found, expected_column in zip(layout.decode(np.concatenate(parts)), expected, strict=True):
        assert found.tolist() == expected_column.tolist()


def test_encode_returns_bioes_tags():
    layout = TagLayout(2)
    tags = layout.encode(np.array([1, 4, 5]), np.array([4, 5, 7]), np.array([0, 1, 1]), 8)
    names = layout.names(("PER", "LOC"))
    assert [names[tag] for tag in tags] == ["O", "B-PER", "I-PER", "E-PER", "S-LOC", "B-LOC", "E-LOC", "O"]


def test_text_without_entities_is_tagged_outside():
    layout, none = TagLayout(2), np.empty(0, dtype=np.int64)
    assert layout.encode(none, none, none, 3).tolist() == [layout.outside] * 3
    assert [column.tolist() for column in layout.decode(np.full(3, layout.outside))] == [[], [], []]


@pytest.mark.parametrize("n_labels", LABEL_COUNTS)
def test_layout_slices_match_tag_names(n_labels):
    layout = TagLayout(n_labels)
    names = np.array(layout.names(tuple("abcde"[:n_labels])))
    initials = {
        "BOS": layout.openers,
        "OSE": layout.closers,
        "EI": layout.continuers,
        "B": layout.begin,
        "S": layout.single,
        "E": layout.end,
        "I": layout.inside,
    }
    assert len(set(names)) == layout.n_tags == 4 * n_labels + 1
    assert names[layout.outside] == "O"
    for letters, block in initials.items():
        assert names[block].tolist() == [name for name in names if name[0] in letters]
    assert len(names[layout.openers]) == len(names[layout.closers]) == layout.n_open


@pytest.mark.parametrize("n_labels", LABEL_COUNTS)
def test_allowed_transitions_follow_bioes_rules(n_labels):
    layout = TagLayout(n_labels)
    names = layout.names(tuple("abcde"[:n_labels]))
    allowed = allowed_transitions(layout)
    for source, first in enumerate(names):
        for target, second in enumerate(names):
            inner = first[0] in "BI"
            expected = second[0] in "EI" and first[1:] == second[1:] if inner else second[0] in "BOS"
            assert allowed[source, target] == expected, (first, second)


@pytest.mark.parametrize("n_labels", [0, 1, 3])
@pytest.mark.parametrize("n_new", [0, 1, 4])
def test_tags_keep_their_names_in_larger_layout(n_labels, n_new):
    labels = tuple("abcdefg"[: n_labels + n_new])
    small, large = TagLayout(n_labels), TagLayout(n_labels + n_new)
    names = np.array(large.names(labels))
    assert names[small.within(large)].tolist() == small.names(labels[:n_labels])


def test_smaller_layout_raises_error():
    with pytest.raises(ValueError, match="3 entity types cannot be extended to a layout for only 2"):
        TagLayout(3).within(TagLayout(2))
