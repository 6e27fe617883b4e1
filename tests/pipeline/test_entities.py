"""Write predicted entities of units to the Doc."""

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc, Span

from spacy_tener.pipeline.entities import RECORD_KEY, UnitEntity, add_entities
from spacy_tener.pipeline.settings import NERSettings
from spacy_tener.pipeline.units import BEGIN, INSIDE, MISSING, OUTSIDE, TokenView, view_of


@pytest.fixture
def vocab():
    return spacy.blank("zh").vocab


@pytest.fixture
def write():
    """Return a function that writes entities to a Doc, and returns the Doc."""

    def annotated(doc, entities, *, view="characters", alignment="expand"):
        settings = NERSettings(view=view, alignment_mode=alignment)
        add_entities(view_of(doc, view), [UnitEntity(*entity) for entity in entities], settings)
        return doc

    return annotated


@pytest.fixture
def words(vocab):
    def make(*words, spaces=None):
        return Doc(vocab, words=words, spaces=spaces or [False] * len(words))

    return make


def found(doc):
    return [(ent.text, ent.label_) for ent in doc.ents]


LENGTH = 8
EXISTING_SPANS = st.lists(
    st.tuples(st.integers(1, 3), st.sampled_from(["", "A", "B", "missing", "blocked"])), max_size=LENGTH
)
PREDICTED_SPANS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3), st.sampled_from("AB")), max_size=5)
NLP = spacy.blank("zh")


def token_states(doc):
    return [(token.ent_iob, token.ent_type_, token.ent_kb_id_, token.ent_id_) for token in doc]


def reference_states(before, entities):
    """Return the expected annotation of all tokens, computed token by token."""
    annotated, assigned, after = any(iob for iob, *_ in before), set(), list(before)
    existing = {i for i, (iob, *_) in enumerate(before) if iob in (BEGIN, INSIDE)}
    for start, end, label in sorted(entities, key=lambda entity: entity[0] - entity[1]):
        if start not in existing and not (existing | assigned) & set(range(start, end)):
            assigned |= set(range(start, end))
            after[start:end] = [(BEGIN if i == start else INSIDE, label, "", "") for i in range(start, end)]
    for i in set(range(len(before))) - assigned:
        if not annotated or before[i][0] == MISSING:
            after[i] = (OUTSIDE, "", "", "")
    return after


@given(EXISTING_SPANS, PREDICTED_SPANS, st.sampled_from(["missing", "outside"]))
def test_add_entities_matches_reference_implementation(existing_spans, entities, default):
    doc, start = Doc(NLP.vocab, words=list("甲" * LENGTH), spaces=[False] * LENGTH), 0
    existing = {"missing": [], "blocked": [], "A": [], "B": [], "": []}
    for length, annotation in existing_spans:
        end = min(start + length, LENGTH)
        span = (
            doc[start:end]
            if annotation not in ("A", "B")
            else Span(doc, start, end, annotation, kb_id="Q1", span_id="7")
        )
        existing[annotation] += [span] * (end > start)
        start = end
    doc.set_ents(
        existing["A"] + existing["B"],
        blocked=existing["blocked"],
        missing=existing["missing"],
        default=default if existing_spans else "missing",
    )
    before, spans = token_states(doc), [(start, start + length, label) for start, length, label in entities]
    add_entities(view_of(doc, "tokens"), [UnitEntity(*span) for span in spans], NERSettings())
    assert token_states(doc) == reference_states(before, spans)


@pytest.mark.parametrize(
    ("alignment", "entity", "expected"),
    [
        ("expand", (1, 3), ["中国银行"]),
        ("contract", (1, 3), []),
        ("strict", (1, 3), []),
        ("expand", (0, 3), ["中国银行"]),
        ("contract", (0, 3), ["中国"]),
        ("strict", (0, 3), []),
        ("expand", (0, 4), ["中国银行"]),
        ("contract", (0, 4), ["中国银行"]),
        ("strict", (0, 4), ["中国银行"]),
    ],
)
def test_alignment_mode_applies_to_boundaries_inside_tokens(
    words, write, char_entities_of, alignment, entity, expected
):
    doc = write(words("中国", "银行", "在"), [(*entity, "ORG")], alignment=alignment)
    assert [ent.text for ent in doc.ents] == expected
    assert char_entities_of(doc) == [(*entity, "ORG")]


@pytest.mark.parametrize(
    ("start", "end", "expected"), [(0, 5, ["中国"]), (1, 6, ["银行"]), (1, 5, []), (0, 6, ["中国  银行"])]
)
def test_contract_mode_excludes_white_space_at_boundaries(words, write, start, end, expected):
    doc = write(words("中国", "  ", "银行"), [(start, end, "ORG")], alignment="contract")
    assert [ent.text for ent in doc.ents] == expected


def test_shared_token_belongs_to_longer_entity(words, write, char_entities_of):
    doc = write(words("东京", "都政府", "好"), [(0, 1, "X"), (1, 5, "ORG")])
    assert found(doc) == [("东京都政府", "ORG")]
    assert char_entities_of(doc) == [(0, 1, "X"), (1, 5, "ORG")]


def test_existing_entity_takes_precedence_in_shared_token(words, write, char_entities_of):
    doc = words("东京", "都政府")
    doc.set_ents([Span(doc, 1, 2, label="ORG")], default="missing")
    write(doc, [(2, 5, "ORG"), (0, 2, "GPE")])
    assert found(doc) == [("东京", "GPE"), ("都政府", "ORG")]
    assert char_entities_of(doc) == [(0, 2, "GPE"), (2, 5, "ORG")]


def test_char_offsets_are_stored_for_single_character_tokens(words, write, char_entities_of):
    doc = write(words(*"王小明"), [(0, 3, "PER")])
    assert isinstance(view_of(doc, "characters"), TokenView)
    assert char_entities_of(doc) == [(0, 3, "PER")]


def test_second_call_keeps_char_offsets_of_first_call(words, write, char_entities_of):
    doc = write(words("中国", "银行", "在"), [(1, 3, "ORG")])
    write(doc, [(0, 4, "ORG"), (4, 5, "X")])
    assert char_entities_of(doc) == [(1, 3, "ORG"), (4, 5, "X")]
    assert found(doc) == [("中国银行", "ORG"), ("在", "X")]


def test_docs_do_not_share_char_offsets(words, write, char_entities_of):
    first, second = words("北京"), words("上海")
    write(first, [(0, 1, "X")])
    assert "tener_ner_chars" not in second.spans
    assert char_entities_of(first) == [(0, 1, "X")]


def test_token_view_stores_no_char_offsets(words, write):
    assert list(write(words("北京", "市"), [(0, 1, "GPE")], view="tokens").spans) == [RECORD_KEY]
