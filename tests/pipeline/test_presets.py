"""Prediction around what is already known: exactly the best reading of all that agree with it."""

import numpy as np
import pytest
import torch
from crf_brute_force import all_paths, path_score
from spacy.tokens import Doc, Span

from spacy_tener.architectures.tagger import crf
from spacy_tener.tagging import TagLayout

TEXT = "王小上海"


LAYOUT = TagLayout(3)
READINGS = [
    (set(zip(*(column.tolist() for column in LAYOUT.decode(path)), strict=True)), path)
    for path in all_paths(LAYOUT, len(TEXT))
]
"""Every list of entities over the tokens, as (start, end, label index), and its tags."""


@pytest.fixture(scope="module")
def rough():
    return {}


@pytest.fixture
def nlp(rough, blank, make_examples, torch_parameters):
    """A pipeline of random weights: no label sequence is certain, so that every constraint matters."""
    if "nlp" not in rough:
        rough["nlp"] = blank()
        rough["nlp"].initialize(lambda: make_examples(rough["nlp"]))
        with torch.no_grad():
            for name, weights in torch_parameters(rough["nlp"].get_pipe("tener_ner")).items():
                if "crf" in name or "emit" in name:
                    # Going on inside an entity is liked, so that there are long ones to cut.
                    weights.normal_(
                        mean=3.0 if name.endswith("crf.inside") else 0.0, std=0.3 if "emit" in name else 1.0
                    )
    return rough["nlp"]


@pytest.fixture
def best(nlp):
    """The best reading of all that a rule allows, entity by entity."""

    def search(doc, rule):
        pipe = nlp.get_pipe("tener_ner")
        scores = torch.from_numpy(pipe.model.predict([doc])[0])
        allowed = [(entities, path) for entities, path in READINGS if rule(entities)]
        tags = torch.from_numpy(np.concatenate([path for _, path in allowed]))
        lengths = [len(doc)] * len(allowed)
        with torch.no_grad():
            weights = path_score(crf(pipe.model), scores.repeat(len(allowed), 1), lengths, tags)
        entities, _ = allowed[int(weights.argmax())]
        return sorted((start, end, pipe.labels[label]) for start, end, label in entities)

    return search


def read(nlp, doc):
    return [(ent.start, ent.end, ent.label_) for ent in nlp.get_pipe("tener_ner")(doc).ents]


def make(nlp, entities=(), blocked=(), starts=()):
    sent_starts = [i in (0, *starts) for i in range(len(TEXT))] if starts else None
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * len(TEXT), sent_starts=sent_starts)
    spans = [Span(doc, start, end, label) for start, end, label in entities]
    doc.set_ents(spans, blocked=[doc[i : i + 1] for i in blocked], default="missing")
    return doc


SPANS = [(start, end) for start in range(4) for end in range(start + 1, 5)]


@pytest.mark.parametrize(("start", "end"), SPANS)
@pytest.mark.parametrize("label", ["GPE", "PER"])
def test_around_a_preset_entity(nlp, best, start, end, label):
    doc = make(nlp, [(start, end, label)])
    index = nlp.get_pipe("tener_ner").labels.index(label)
    assert read(nlp, doc) == best(make(nlp), lambda entities: (start, end, index) in entities)


@pytest.mark.parametrize(("start", "end"), SPANS)
def test_around_a_preset_entity_of_an_unknown_label(nlp, best, start, end):
    doc = make(nlp, [(start, end, "STRANGE")])
    around = best(make(nlp), lambda entities: all(stop <= start or begin >= end for begin, stop, _ in entities))
    assert read(nlp, doc) == sorted([*around, (start, end, "STRANGE")])


@pytest.mark.parametrize("blocked", [[0], [1], [3], [0, 2], [1, 2], [0, 1, 2, 3]])
def test_around_blocked_tokens(nlp, best, blocked):
    doc = make(nlp, blocked=blocked)
    free = best(make(nlp), lambda entities: not any(start <= i < end for start, end, _ in entities for i in blocked))
    assert read(nlp, doc) == free


@pytest.mark.parametrize("starts", [[1], [2], [3], [1, 3], [1, 2, 3]])
def test_within_known_sentences(nlp, best, starts):
    doc = make(nlp, starts=starts)
    within = best(make(nlp), lambda entities: not any(start < i < end for start, end, _ in entities for i in starts))
    assert read(nlp, doc) == within


def test_unconstrained_prediction_is_the_best_of_all(nlp, best):
    assert read(nlp, make(nlp)) == best(make(nlp), lambda entities: True)


def test_constraints_do_change_readings(nlp):
    """Otherwise nothing above would be tested."""
    free = read(nlp, make(nlp))
    assert any(read(nlp, make(nlp, starts=[i])) != free for i in (1, 2, 3)), free
    assert any(read(nlp, make(nlp, blocked=[i])) != free for i in range(4))
