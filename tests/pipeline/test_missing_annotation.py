"""Missing annotation: the loss sums over all label sequences that agree with the annotated tokens."""

import itertools

import numpy as np
import pytest
import torch
from crf_brute_force import all_paths, path_score
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spacy.training import Example

from spacy_tener.architectures.tagger import torch_crf
from spacy_tener.tagging import TagLayout

TEXT = "王小明去"
LABELS = ("GPE", "ORG", "PER")
LAYOUT = TagLayout(len(LABELS))
NAMES = np.array(LAYOUT.names(LABELS))
PATHS = all_paths(LAYOUT, len(TEXT))


def log_weights(pipe, doc):
    """Return the scores of all paths."""
    scores = torch.from_numpy(pipe.model.predict([doc])[0]).double()
    repeated = scores.repeat(len(PATHS), 1)
    tags = torch.from_numpy(PATHS.ravel())
    with torch.no_grad():
        return path_score(torch_crf(pipe.model), repeated, [len(doc)] * len(PATHS), tags).double()


@pytest.fixture(scope="module")
def cache():
    return {}


@pytest.fixture
def nlp(learned, cache):
    if not cache:
        cache["nlp"] = learned()
    return cache["nlp"]


def spacy_tags(path):
    """Return a path as tags in the format of `Example.from_dict`."""
    return [str(name).replace("S-", "U-").replace("E-", "L-") for name in NAMES[path]]


def partial(nlp, path, hidden):
    """Return the tags of a path, with missing annotation for hidden spans. An entity is hidden completely or not."""
    tags = spacy_tags(path)
    spans, start = [], 0
    for i, tag in enumerate(tags):
        if tag[0] in "OUL":
            spans.append(range(start, i + 1))
            start = i + 1
    for span, hide in zip(spans, itertools.cycle(hidden), strict=False):
        for i in span:
            tags[i] = "-" if hide else tags[i]
    return tags


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.integers(0, len(PATHS) - 1), hidden=st.lists(st.booleans(), min_size=1, max_size=4))
def test_loss_equals_brute_force_over_all_paths(nlp, path, hidden):
    tags = partial(nlp, PATHS[path], hidden)
    pipe = nlp.get_pipe("tener_ner")
    example = Example.from_dict(nlp.make_doc(TEXT), {"entities": tags})
    loss = pipe.update([example], losses={})["tener_ner"]
    weights = log_weights(pipe, nlp.make_doc(TEXT))
    agreeing = np.array([all(tag in ("-", gold) for gold, tag in zip(spacy_tags(p), tags, strict=True)) for p in PATHS])
    expected = weights.logsumexp(0) - weights[torch.from_numpy(agreeing)].logsumexp(0)
    assert loss == pytest.approx(float(expected), rel=1e-4, abs=1e-4)


def test_unannotated_docs_do_not_change_loss_or_gradients(learned, make_examples, gradients):
    plain, mixed = learned(), learned()
    examples = make_examples(plain)
    loss = plain.get_pipe("tener_ner").update(examples, losses={})
    unannotated = [Example(mixed.make_doc(TEXT), mixed.make_doc(TEXT)), Example(mixed.make_doc(""), mixed.make_doc(""))]
    assert mixed.get_pipe("tener_ner").update(unannotated + make_examples(mixed) + unannotated, losses={}) == loss
    expected = gradients(plain.get_pipe("tener_ner"))
    found = gradients(mixed.get_pipe("tener_ner"))
    assert expected.keys() == found.keys()
    for name, gradient in expected.items():
        assert torch.equal(found[name], gradient), name
