"""Memory use stays bounded while a service processes new words, inside and outside spaCy's memory zones."""

import gc
import sys
import types

import numpy as np
import pytest
import spacy
import torch
from small_systems import trained
from spacy.tokens import Doc

from spacy_tener.features import keys

pytestmark = pytest.mark.filterwarnings("ignore:.*was trained on tokens")

MAX_STRINGS, N_WORDS, WORDS_PER_DOC = 500, 3000, 50


@pytest.fixture(scope="module", params=["tener", "flat", "mect", "grn"])
def nlp(request):
    return spacy.load(trained(request.param))


@pytest.fixture(autouse=True)
def small_string_caches(monkeypatch):
    """Reduce the maximum size of the string caches, because the texts are short as well."""
    monkeypatch.setattr(keys, "_MAX_STRINGS", MAX_STRINGS)


def size_of(root):
    """Return the size of an object and everything that it references, in bytes."""
    counted, pending, total = {}, [root], 0
    while pending:
        item = pending.pop()
        if id(item) in counted or isinstance(item, type | types.ModuleType | types.FunctionType):
            continue
        counted[id(item)] = item
        total += sys.getsizeof(item)
        total += item.nbytes if isinstance(item, np.ndarray | torch.Tensor) else 0
        pending.extend(gc.get_referents(item))
    return total


def docs(nlp, start, count):
    """Yield Docs with `count` unique words in total. Their digits and capitals are changed by normalization."""
    for first in range(start, start + count, WORDS_PER_DOC):
        yield Doc(nlp.vocab, words=["王小明", *(f"词{number:x}Ä" for number in range(first, first + WORDS_PER_DOC))])


def found(docs):
    return [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in docs]


@pytest.mark.parametrize("in_memory_zone", [False, True])
def test_model_size_is_bounded_for_new_words(nlp, in_memory_zone):
    pipe = nlp.get_pipe("tener_ner")
    start = 1_000_000 if in_memory_zone else 0

    def serve(first):
        if in_memory_zone:
            with nlp.memory_zone():
                found(nlp.pipe(docs(nlp, first, N_WORDS)))
        else:
            found(nlp.pipe(docs(nlp, first, N_WORDS)))

    serve(start)
    before, strings = size_of(pipe.model), len(nlp.vocab.strings)
    serve(start + N_WORDS)
    # The caches can grow to their limit: a key and an index of eight bytes each, stored twice while merging.
    assert size_of(pipe.model) - before <= 2 * 16 * MAX_STRINGS
    assert (len(nlp.vocab.strings) == strings) == in_memory_zone


def test_caches_stay_valid_after_memory_zone(nlp):
    """Strings of a memory zone are freed when it ends, but the caches keep their hashes."""
    expected = found(nlp.pipe(docs(nlp, 2_000_000, 200)))
    new_docs = list(docs(nlp, 3_000_000, 200))
    with nlp.memory_zone():
        assert found(nlp.pipe(docs(nlp, 2_000_000, 200))) == expected
        inside = found(nlp.pipe(docs(nlp, 4_000_000, 200)))
    # First process other strings, so that the freed memory is reused.
    outside = found(nlp.pipe(new_docs))
    assert found(nlp.pipe(docs(nlp, 4_000_000, 200))) == inside
    with nlp.memory_zone():
        assert found(nlp.pipe(docs(nlp, 3_000_000, 200))) == outside
        assert found(nlp.pipe(docs(nlp, 4_000_000, 200))) == inside


@pytest.mark.slow
def test_model_size_is_bounded_for_200_000_new_words(nlp, monkeypatch):
    monkeypatch.undo()
    before = size_of(nlp.get_pipe("tener_ner").model)
    with nlp.memory_zone():
        for _ in nlp.pipe(docs(nlp, 5_000_000, 200_000)):
            pass
    assert size_of(nlp.get_pipe("tener_ner").model) - before <= 4 * 16 * 200_000
