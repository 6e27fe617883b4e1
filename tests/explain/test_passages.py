"""Passages cover a Doc, lie in the window that they are read in, and do not cut entities."""

from __future__ import annotations

import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.tokens import Doc

from spacy_tener.explain.passages import MAX_UNITS, cut_passages
from spacy_tener.pipeline.settings import NERSettings
from spacy_tener.pipeline.units import TokenView

VOCAB = spacy.blank("zh").vocab
SETTINGS = NERSettings(window=100, overlap=20)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 90)), max_size=8), st.sampled_from(["王", "。", "王。明明明"])
)
def test_passages_cover_a_doc_and_keep_entities_whole(steps: list[tuple[int, int]], text: str) -> None:
    entities, end = [], 0
    for gap, size in steps:
        entities.append((end + gap, end + gap + size))
        end = entities[-1][1]
    words = [text[i % len(text)] for i in range(end + 30)]
    view = TokenView(Doc(VOCAB, words=words, spaces=[False] * len(words)))
    found = cut_passages(view, entities, SETTINGS)
    assert [passage.start for passage in found] == [0, *(passage.end for passage in found[:-1])]
    assert found[-1].end == len(words)
    for passage in found:
        assert passage.window.start <= passage.start < passage.end <= passage.window.end
        inside = [(first, last) for first, last in entities if passage.start <= first < passage.end]
        assert all(last <= passage.end or last > passage.window.end for first, last in inside)
        assert passage.end - passage.start <= MAX_UNITS or any(last == passage.end for _, last in inside) or inside


def test_passages_end_after_a_sentence_and_before_the_entity_that_begins_there() -> None:
    def cut(words: list[str], entities: list[tuple[int, int]]) -> list[int]:
        view = TokenView(Doc(VOCAB, words=words, spaces=[False] * len(words)))
        return [passage.end for passage in cut_passages(view, entities, NERSettings(window=200, overlap=20))]

    assert cut(["王"] * MAX_UNITS, []) == [MAX_UNITS]
    assert cut(["王"] * 40 + ["。"] + ["王"] * 19, []) == [60]
    assert cut(["王"] * 130, [(MAX_UNITS, 70), (127, 130)]) == [MAX_UNITS, 130]
    assert cut(["王"] * 40 + ["。"] + ["王"] * 59, []) == [41, 100]
    assert cut(["王"] * 40 + ["。"] + ["王"] * 59, [(39, 41)]) == [41, 100]
    assert cut(["王"] * 40 + ["。"] + ["王"] * 59, [(39, 42)]) == [MAX_UNITS, 100]
