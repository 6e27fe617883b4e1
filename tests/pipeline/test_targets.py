"""Training targets of examples: tags, incorrect spans and weights."""

import itertools

import numpy as np
import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, Span
from spacy.training import Example

from spacy_tener.pipeline.learning.targets import WEIGHT, IncorrectSpan, Target, make_target
from spacy_tener.pipeline.tags import UNKNOWN, LabelIndex, encode_units
from spacy_tener.pipeline.units import BEGIN, INSIDE, OUTSIDE, CharacterView, TokenView, Units, view_of
from spacy_tener.pipeline.windows import Window, cut_windows

HASH = 7
LABELS = LabelIndex([HASH])
NAMES = LABELS.layout.names(("X",))


def target_of(entities, length, missing=(), incorrect=()):
    iob = np.full(length, OUTSIDE)
    for start, end in entities:
        iob[start:end] = INSIDE
        iob[start] = BEGIN
    label = np.where(iob == OUTSIDE, 0, HASH).astype(np.uint64)
    iob[list(missing)] = 0
    units = Units(np.zeros(length, dtype=np.int64), iob, label, np.zeros(length, dtype=bool))
    return Target(None, units, encode_units(units, LABELS), list(incorrect))


def names_of(tags):
    return " ".join("-" if tag == UNKNOWN else NAMES[tag].replace("-X", "") for tag in tags)


class TestWindows:
    @pytest.mark.parametrize(
        ("entities", "missing", "window", "tags"),
        [
            # An entity that crosses the end of the kept part has all tags in the window where it starts.
            ([(3, 6)], [], Window(0, 7, 0, 4), "O O O B I E -"),
            ([(3, 6)], [], Window(2, 9, 4, 9), "- - - - O O O"),
            # Entities that end outside the window have unknown tags. Entities that end with the window have tags.
            ([(3, 8)], [], Window(0, 6, 0, 4), "O O O - - -"),
            ([(3, 8)], [], Window(2, 9, 4, 9), "- - - - - - O"),
            ([(3, 6), (6, 8)], [], Window(0, 6, 0, 4), "O O O B I E"),
            # Adjacent entities are distinguished.
            ([(0, 3), (3, 5)], [], Window(0, 5, 0, 3), "B I E - -"),
            ([(0, 3), (3, 5)], [], Window(1, 6, 3, 6), "- - B E O"),
            # Missing annotation stays missing.
            ([(1, 3)], [0, 4], Window(0, 6, 0, 6), "- B E O - O"),
        ],
    )
    def test_window_tags_contain_entities_starting_in_kept_part(self, entities, missing, window, tags):
        assert names_of(target_of(entities, 9, missing).in_window(window).tags) == tags

    def test_incorrect_spans_are_assigned_to_window_of_start(self):
        wrong = [IncorrectSpan(1, 2, 0), IncorrectSpan(3, 6, 0), IncorrectSpan(3, 7, 0), IncorrectSpan(5, 7, 0)]
        target = target_of([], 8, incorrect=wrong)
        assert target.in_window(Window(0, 6, 0, 4)).incorrect == [IncorrectSpan(1, 2, 0), IncorrectSpan(3, 6, 0)]
        assert target.in_window(Window(2, 8, 4, 8)).incorrect == [IncorrectSpan(3, 5, 0)]

    @given(
        cuts=st.lists(st.integers(0, 60), max_size=30, unique=True).map(sorted),
        is_entity=st.lists(st.booleans(), min_size=30, max_size=30),
        overlap=st.integers(1, 6),
        extra=st.integers(1, 12),
        ends=st.lists(st.integers(0, 59), max_size=10),
    )
    def test_windows_cover_all_tags_exactly_once(self, cuts, is_entity, overlap, extra, ends):
        """The entities are not longer than the context and contain no sentence ends, so all tags are assigned."""
        candidates = [(start, min(end, start + overlap)) for start, end in itertools.pairwise(cuts)]
        entities = [candidate for candidate, keep in zip(candidates, is_entity, strict=False) if keep]
        target = target_of(entities, 60)
        marks = np.zeros(60, dtype=bool)
        marks[[end for end in ends if not any(start <= end < stop - 1 for start, stop in entities)]] = True
        counts = np.zeros(60, dtype=np.int64)
        for window in cut_windows(60, marks, size=2 * overlap + extra, overlap=overlap):
            tags = target.in_window(window).tags
            units = np.flatnonzero(tags != UNKNOWN)
            np.testing.assert_array_equal(tags[units], target.tags[window.start + units])
            counts[window.start + units] += 1
        assert counts.tolist() == [1] * 60


@pytest.fixture
def nlp(blank):
    return blank()


def make(nlp, predicted, reference, view="tokens", labels=("PER", "ORG"), key=None):
    hashes = LabelIndex([nlp.vocab.strings.add(label) for label in labels])
    target = make_target(Example(predicted, reference), view_of(predicted, view), hashes, key)
    return target, hashes.layout.names(tuple(labels))


def doc_of(nlp, words, entities=(), spaces=None, **set_ents):
    doc = Doc(nlp.vocab, words=words, spaces=spaces or [False] * len(words))
    spans_by_value = {key: [doc[start:end] for start, end in value] for key, value in set_ents.items()}
    if entities or set_ents:
        doc.set_ents([Span(doc, start, end, label) for start, end, label in entities], **spans_by_value)
    return doc


def tags_of(target, names):
    return " ".join("-" if tag == UNKNOWN else names[tag] for tag in target.tags)


WORDS, CHARACTERS = ["王小明", "去", "北京"], list("王小明去北京")
SPACED = [True, True, False]


class TestGold:
    @pytest.mark.parametrize(
        ("words", "missing", "predicted", "spaces", "view", "tags"),
        [
            (WORDS, [], WORDS, None, "tokens", "S-PER O O"),
            (WORDS, [], CHARACTERS, None, "tokens", "B-PER I-PER E-PER O O O"),
            # A misaligned entity is missing in the token view, but not in the character view.
            (WORDS, [], ["王小", "明去", "北京"], None, "tokens", "- - O"),
            (WORDS, [], ["王小", "明去", "北京"], None, "characters", "B-PER I-PER E-PER O O O"),
            # If texts differ in white space, both views align tokens.
            (WORDS, [], WORDS, SPACED, "tokens", "S-PER O O"),
            (WORDS, [], WORDS, SPACED, "characters", "B-PER I-PER E-PER O O O O O"),
            # Missing annotation stays missing.
            (WORDS, [(2, 3)], WORDS, None, "tokens", "S-PER O -"),
            (WORDS, [(2, 3)], ["王", "小明去", "北京"], None, "characters", "B-PER I-PER E-PER O - -"),
            (CHARACTERS, [(2, 4)], CHARACTERS, None, "characters", "S-PER O - - O O"),
        ],
    )
    def test_annotation_is_aligned_to_view(self, nlp, words, missing, predicted, spaces, view, tags):
        reference = doc_of(nlp, words, [(0, 1, "PER")], missing=missing)
        target, names = make(nlp, doc_of(nlp, predicted, spaces=spaces), reference, view)
        assert tags_of(target, names) == tags
        assert target.has_loss
        assert isinstance(target.view, CharacterView if view == "characters" and predicted != CHARACTERS else TokenView)

    def test_unannotated_doc_has_no_loss(self, nlp):
        target, _ = make(nlp, doc_of(nlp, list("王")), doc_of(nlp, list("王")))
        assert not target.has_loss

    @pytest.mark.parametrize("view", ["tokens", "characters"])
    def test_white_space_is_trimmed_from_gold_entities(self, nlp, view):
        words = [" ", "王", " ", "明", " "]
        reference = doc_of(nlp, words, [(0, 5, "PER")])
        target, names = make(nlp, doc_of(nlp, words), reference, view)
        assert tags_of(target, names) == "O B-PER I-PER E-PER O"

    def test_empty_docs_have_no_loss(self, nlp):
        for view in ("tokens", "characters"):
            target, _ = make(nlp, doc_of(nlp, []), doc_of(nlp, []), view)
            assert not target.has_loss
            assert isinstance(target.view, TokenView)


class TestIncorrectSpans:
    def reference(self, nlp, spans, entities=(), words="王小明去北京"):
        doc = doc_of(nlp, list(words), entities)
        doc.spans["wrong"] = [Span(doc, start, end, label) for start, end, label in spans]
        return doc

    def spans(self, nlp, predicted, reference, view="tokens", key="wrong"):
        return make(nlp, predicted, reference, view, key=key)[0].incorrect

    def test_only_configured_span_group_is_used(self, nlp):
        reference = self.reference(nlp, [(0, 3, "PER")])
        predicted = doc_of(nlp, list(reference.text))
        assert self.spans(nlp, predicted, reference) == [IncorrectSpan(0, 3, 0)]
        assert self.spans(nlp, predicted, reference, key=None) == []
        assert self.spans(nlp, predicted, reference, key="other") == []

    def test_incorrect_spans_without_entities_have_loss(self, nlp):
        reference = self.reference(nlp, [(0, 3, "PER")])
        target, _ = make(nlp, doc_of(nlp, list(reference.text)), reference, key="wrong")
        assert target.has_loss

    def test_incorrect_spans_can_overlap(self, nlp):
        reference = self.reference(nlp, [(0, 3, "PER"), (1, 3, "PER"), (0, 3, "ORG")])
        found = self.spans(nlp, doc_of(nlp, list(reference.text)), reference)
        assert found == [IncorrectSpan(0, 3, 0), IncorrectSpan(1, 3, 0), IncorrectSpan(0, 3, 1)]

    def test_incorrect_spans_with_unknown_label_are_ignored(self, nlp):
        reference = self.reference(nlp, [(0, 3, "STRANGE"), (4, 6, "ORG")])
        assert self.spans(nlp, doc_of(nlp, list(reference.text)), reference) == [IncorrectSpan(4, 6, 1)]

    def test_incorrect_spans_are_aligned_to_view(self, nlp):
        reference = self.reference(nlp, [(0, 3, "PER"), (5, 6, "PER")])
        predicted = doc_of(nlp, ["王小明", "去", "北京"])
        assert self.spans(nlp, predicted, reference) == [IncorrectSpan(0, 1, 0)]
        assert self.spans(nlp, predicted, reference, "characters") == [IncorrectSpan(0, 3, 0), IncorrectSpan(5, 6, 0)]

    def test_char_offsets_refer_to_predicted_text(self, nlp):
        reference = self.reference(nlp, [(4, 6, "PER")])
        predicted = doc_of(nlp, ["王小明", "去", "北京"], spaces=[True, True, False])
        assert self.spans(nlp, predicted, reference, "characters") == [IncorrectSpan(6, 8, 0)]

    @pytest.mark.parametrize("view", ["tokens", "characters"])
    def test_incorrect_span_equal_to_gold_entity_raises_error(self, nlp, view):
        reference = self.reference(nlp, [(0, 3, "PER")], [(0, 3, "PER")])
        with pytest.raises(ValueError, match="E868"):
            self.spans(nlp, doc_of(nlp, list(reference.text)), reference, view)

    def test_incorrect_span_may_share_offsets_with_gold_entity(self, nlp):
        reference = self.reference(nlp, [(0, 3, "ORG")], [(0, 3, "PER")])
        assert self.spans(nlp, doc_of(nlp, list(reference.text)), reference) == [IncorrectSpan(0, 3, 1)]


def test_weight_of_reference_applies_to_windows():
    reference = spacy.blank("zh")("王小明")
    reference.user_data[WEIGHT] = 0.25
    target = make_target(Example(reference.copy(), reference), view_of(reference, "tokens"), LABELS, None)
    assert target.weight == target.in_window(Window(0, 2, 0, 1)).weight == 0.25
    reference.user_data[WEIGHT] = 0
    assert not make_target(Example(reference.copy(), reference), view_of(reference, "tokens"), LABELS, None).has_loss
    reference.user_data[WEIGHT] = "much"
    with pytest.raises(ValueError, match="must be a number of 0 or more, but is 'much'"):
        make_target(Example(reference.copy(), reference), view_of(reference, "tokens"), LABELS, None)
