"""Prediction with existing entities, blocked tokens and sentence starts: the result is the best label sequence that
satisfies these constraints."""

import numpy as np
import pytest
import torch
from crf_brute_force import all_paths, path_score
from spacy.tokens import Doc, Span

from spacy_tener.architectures.tagger import torch_crf
from spacy_tener.tagging import TagLayout

TEXT = "王小上海"


LAYOUT = TagLayout(3)
# Entities of all label sequences of the text, as (start, end, label index), and their tags.
SEQUENCES = [
    (set(zip(*(column.tolist() for column in LAYOUT.decode(path)), strict=True)), path)
    for path in all_paths(LAYOUT, len(TEXT))
]


@pytest.fixture(scope="module")
def cache():
    return {}


@pytest.fixture
def nlp(cache, blank, make_examples, torch_parameters):
    """A pipeline with random weights, whose predictions are uncertain and change with all constraints."""
    if "nlp" not in cache:
        cache["nlp"] = blank()
        cache["nlp"].initialize(lambda: make_examples(cache["nlp"]))
        with torch.no_grad():
            for name, weights in torch_parameters(cache["nlp"].get_pipe("tener_ner")).items():
                if "crf" in name or "emit" in name:
                    # Increase the transition scores inside entities, to predict long entities.
                    weights.normal_(
                        mean=3.0 if name.endswith("crf.inside") else 0.0, std=0.3 if "emit" in name else 1.0
                    )
    return cache["nlp"]


@pytest.fixture
def best_sequence(nlp):
    """Return a function that searches the best label sequence among all whose entities satisfy a condition."""

    def search(doc, rule):
        pipe = nlp.get_pipe("tener_ner")
        scores = torch.from_numpy(pipe.model.predict([doc])[0])
        allowed = [(entities, path) for entities, path in SEQUENCES if rule(entities)]
        tags = torch.from_numpy(np.concatenate([path for _, path in allowed]))
        lengths = [len(doc)] * len(allowed)
        with torch.no_grad():
            weights = path_score(torch_crf(pipe.model), scores.repeat(len(allowed), 1), lengths, tags)
        entities, _ = allowed[int(weights.argmax())]
        return sorted((start, end, pipe.labels[label]) for start, end, label in entities)

    return search


def predict(nlp, doc):
    return [(ent.start, ent.end, ent.label_) for ent in nlp.get_pipe("tener_ner")(doc).ents]


def make_doc(nlp, entities=(), blocked=(), starts=()):
    sent_starts = [i in (0, *starts) for i in range(len(TEXT))] if starts else None
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * len(TEXT), sent_starts=sent_starts)
    spans = [Span(doc, start, end, label) for start, end, label in entities]
    doc.set_ents(spans, blocked=[doc[i : i + 1] for i in blocked], default="missing")
    return doc


SPANS = [(start, end) for start in range(4) for end in range(start + 1, 5)]


@pytest.mark.parametrize(("start", "end"), SPANS)
@pytest.mark.parametrize("label", ["GPE", "PER"])
def test_prediction_is_optimal_around_existing_entity(nlp, best_sequence, start, end, label):
    doc = make_doc(nlp, [(start, end, label)])
    index = nlp.get_pipe("tener_ner").labels.index(label)
    assert predict(nlp, doc) == best_sequence(make_doc(nlp), lambda entities: (start, end, index) in entities)


@pytest.mark.parametrize(("start", "end"), SPANS)
def test_prediction_is_optimal_around_entity_with_unknown_label(nlp, best_sequence, start, end):
    doc = make_doc(nlp, [(start, end, "STRANGE")])
    around = best_sequence(
        make_doc(nlp), lambda entities: all(stop <= start or begin >= end for begin, stop, _ in entities)
    )
    assert predict(nlp, doc) == sorted([*around, (start, end, "STRANGE")])


@pytest.mark.parametrize("blocked", [[0], [1], [3], [0, 2], [1, 2], [0, 1, 2, 3]])
def test_prediction_is_optimal_around_blocked_tokens(nlp, best_sequence, blocked):
    doc = make_doc(nlp, blocked=blocked)
    free = best_sequence(
        make_doc(nlp), lambda entities: not any(start <= i < end for start, end, _ in entities for i in blocked)
    )
    assert predict(nlp, doc) == free


@pytest.mark.parametrize("starts", [[1], [2], [3], [1, 3], [1, 2, 3]])
def test_prediction_is_optimal_within_annotated_sentences(nlp, best_sequence, starts):
    doc = make_doc(nlp, starts=starts)
    within = best_sequence(
        make_doc(nlp), lambda entities: not any(start < i < end for start, end, _ in entities for i in starts)
    )
    assert predict(nlp, doc) == within


def test_unconstrained_prediction_is_optimal(nlp, best_sequence):
    assert predict(nlp, make_doc(nlp)) == best_sequence(make_doc(nlp), lambda entities: True)


def test_constraints_change_predictions(nlp):
    """Check that the constraints in the tests above are effective."""
    free = predict(nlp, make_doc(nlp))
    assert any(predict(nlp, make_doc(nlp, starts=[i])) != free for i in (1, 2, 3)), free
    assert any(predict(nlp, make_doc(nlp, blocked=[i])) != free for i in range(4))
