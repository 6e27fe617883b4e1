"""Property-based tests of the component with arbitrary texts and annotation, for all architectures and both views."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache

import pytest
import spacy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from small_systems import SYSTEMS, TEXTS, trained
from spacy.tokens import Doc, Span

from spacy_tener.pipeline.entities import RECORD_KEY

pytestmark = pytest.mark.filterwarnings("ignore:.*was trained on tokens")

SYSTEM_NAMES = [*SYSTEMS]
LABELS = ["PER", "ORG", "LOC", "GPE", "PLANET"]

STRINGS = [
    *(word for text, _ in TEXTS for word in (text, *text[:5])),
    *("👨‍👩‍👧‍👦", "🇨🇳", "👍🏽", "❤️", "é", "ก็", "नि", "\U0001d504", "𠮷", "\U0010ffff", "\ufffe", "\ue000"),
    *("吳重陽在中國銀行", "臺灣台湾", "髮发發", "嘅咗喺冇", "込畑の", "ＩＢＭ", "㈱", "豈"),
    *("\u200b", "\u200d", "\u200e", "\u200f", "\u202e", "\u2066", "\ufeff", "\u00ad", "\u2028", "\x00", "\x85", "\x1f"),
    *(" ", "  ", "\n", "\t", "\u3000", "\xa0", " \n ", "。", ".", "٣", "²", "Ⅷ", "12", "ß", "İ", "ﬁ", "ǅ", "a" * 70),
]
WORDS = st.one_of(
    st.sampled_from(STRINGS),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=3),
    st.lists(st.sampled_from(STRINGS), min_size=2, max_size=3).map("".join),
)


@dataclass(frozen=True)
class Recipe:
    """The arguments to make a Doc, as often as needed."""

    # Text, following space and sentence start of each token.
    tokens: list[tuple[str, bool, bool | None]] = field(default_factory=list)
    # Distance from the previous span, length in tokens, and label ("blocked", "missing" and "outside" have no label).
    annotations: list[tuple[int, int, str]] = field(default_factory=list)
    default: str = "missing"

    def doc(self, vocab):
        words, spaces, starts = zip(*self.tokens, strict=True) if self.tokens else ((), (), ())
        doc = Doc(vocab, words=list(words), spaces=list(spaces), sent_starts=list(starts) if words else None)
        spans = {"blocked": [], "missing": [], "outside": [], "entities": []}
        end = 0
        for gap, length, label in self.annotations:
            start, end = end + gap, end + gap + length
            if end <= len(doc):
                group = label if label in spans else "entities"
                spans[group].append(Span(doc, start, end, label="" if label in spans else label))
        doc.set_ents(default=self.default, **spans)
        return doc


RECIPES = st.builds(
    Recipe,
    st.lists(st.tuples(WORDS, st.booleans(), st.sampled_from([None, None, True, False])), max_size=14),
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.sampled_from([*LABELS, "blocked", "missing", "outside"])),
        max_size=4,
    ),
    st.sampled_from(["missing", "outside"]),
)


@pytest.fixture(scope="module")
def pipelines():
    return cache(lambda system: spacy.load(trained(system)))


def ents_of(doc):
    return [(ent.start, ent.end, ent.label_) for ent in doc.ents]


def groups_in(doc):
    """Return the span groups that are part of the public interface."""
    return {key: group for key, group in doc.spans.items() if key != RECORD_KEY}


def found_in(doc):
    """Return all annotation that the component sets."""
    groups = {key: [*map(tuple, group.attrs["char_offsets"])] for key, group in groups_in(doc).items()}
    return ents_of(doc), [(token.ent_iob_, token.ent_type_) for token in doc], groups


def check_invariants(before, doc):
    assert doc.text == before.text
    assert [token.text for token in doc] == [token.text for token in before]
    assert set(ents_of(before)) <= set(ents_of(doc))
    assert doc.has_annotation("ENT_IOB", require_complete=True) or not len(doc)
    for ent in set(ents_of(doc)) - set(ents_of(before)):
        start, end, _ = ent
        assert not doc[start].is_space and not doc[end - 1].is_space  # noqa: PT018 - the message shows which end failed
        assert not any(token.is_sent_start for token in before[start + 1 : end])
        assert not any(is_blocked(token) for token in before[start:end])
    assert all(is_blocked(now) for now, token in zip(doc, before, strict=True) if is_blocked(token))
    for group in groups_in(doc).values():
        for (start, end), span in zip(group.attrs["char_offsets"], group, strict=True):
            text = doc.text[start:end]
            assert span.start_char <= start < end <= span.end_char
            assert text == text.strip() or any(span.start == ent[0] for ent in ents_of(before))


def is_blocked(token):
    return token.ent_iob_ == "B" and not token.ent_type_


def configure(nlp, view, window):
    nlp.get_pipe("tener_ner").cfg.update(view=view, window=window, overlap=min(40, (window - 1) // 2))


def check(nlp, recipes, batch_size):
    before = [recipe.doc(nlp.vocab) for recipe in recipes]
    alone = [nlp(recipe.doc(nlp.vocab)) for recipe in recipes]
    for original, doc in zip(before, alone, strict=True):
        check_invariants(original, doc)
    together = nlp.pipe((recipe.doc(nlp.vocab) for recipe in recipes), batch_size=batch_size)
    for recipe, doc, expected in zip(recipes, together, alone, strict=True):
        if found_in(doc) != found_in(expected):
            # Rounding errors differ in a batch, and may decide between two equally probable tag sequences.
            decoding = next(nlp.get_pipe("tener_ner").decode([recipe.doc(nlp.vocab)]))
            (best, *_), (second, *_) = decoding.batch.k_best(2)[0]
            assert best - second < 1e-5


def fuzzed(max_examples):
    return settings(max_examples=max_examples, suppress_health_check=list(HealthCheck))


CASES = {
    "recipes": st.lists(RECIPES, min_size=1, max_size=4),
    "batch_size": st.integers(1, 4),
    "window": st.integers(5, 9),
}


@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("system", SYSTEM_NAMES)
@fuzzed(10)
@example(recipes=[Recipe(), Recipe([("上海", False, None)])], batch_size=2, window=200)
@example(recipes=[Recipe([("\n", True, None)] * 3)], batch_size=1, window=5)
@given(**CASES)
def test_invariants_hold_for_single_docs_and_batches(pipelines, system, view, recipes, batch_size, window):
    nlp = pipelines(system)
    configure(nlp, view, window)
    check(nlp, recipes, batch_size)


@pytest.mark.slow
@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("system", SYSTEM_NAMES)
@fuzzed(1000)
@given(**CASES)
def test_invariants_hold_for_many_examples(pipelines, system, view, recipes, batch_size, window):
    nlp = pipelines(system)
    configure(nlp, view, window)
    check(nlp, recipes, batch_size)


@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("system", SYSTEM_NAMES)
@fuzzed(1)
@given(recipes=st.lists(RECIPES, min_size=8, max_size=8))
def test_threads_find_the_same_entities(pipelines, system, view, recipes):
    nlp = pipelines(system)
    configure(nlp, view, 9)
    alone = [found_in(nlp(recipe.doc(nlp.vocab))) for recipe in recipes]
    docs = [recipe.doc(nlp.vocab) for recipe in recipes] * 3
    with ThreadPoolExecutor(4) as pool:
        assert [*map(found_in, pool.map(nlp, docs))] == alone * 3


def check_long_tokens(nlp, view, length):
    configure(nlp, view, 200)
    texts = ["王" * length, "a" * length, "👨‍👩‍👧‍👦" * (length // 7), "\u200b" * length, " " * length]
    check(nlp, [Recipe([("在", False, None), (text, False, None), ("上海", False, None)]) for text in texts], 3)


@pytest.mark.parametrize("view", ["tokens", "characters"])
@pytest.mark.parametrize("system", SYSTEM_NAMES)
def test_invariants_hold_for_long_tokens(pipelines, system, view):
    check_long_tokens(pipelines(system), view, 200_000 if view == "tokens" else 500)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEM_NAMES)
def test_invariants_hold_for_characters_of_long_tokens(pipelines, system):
    check_long_tokens(pipelines(system), "characters", 20_000)


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEM_NAMES)
@fuzzed(3)
@given(recipes=st.lists(RECIPES, min_size=8, max_size=8))
def test_processes_find_the_same_entities(pipelines, system, recipes):
    nlp = pipelines(system)
    configure(nlp, "tokens", 9)
    alone = [found_in(nlp(recipe.doc(nlp.vocab))) for recipe in recipes]
    docs = nlp.pipe((recipe.doc(nlp.vocab) for recipe in recipes), n_process=2, batch_size=3)
    assert [*map(found_in, docs)] == alone
