"""A service that meets ever new words takes no more and more memory, in spaCy's memory zones and outside of them."""

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

MOST, WORDS, WIDTH = 500, 3000, 50


@pytest.fixture(scope="module", params=["tener", "flat", "mect", "grn"])
def nlp(request):
    return spacy.load(trained(request.param))


@pytest.fixture(autouse=True)
def few_strings(monkeypatch):
    """The bound of the caches of strings, scaled down as the texts are."""
    monkeypatch.setattr(keys, "_MAX_STRINGS", MOST)


def size_of(root):
    """Bytes of all that an object holds."""
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
    """Docs with so many words that no other Doc has, of digits and capitals, which normalisation changes."""
    for first in range(start, start + count, WIDTH):
        yield Doc(nlp.vocab, words=["王小明", *(f"词{number:x}Ä" for number in range(first, first + WIDTH))])


def found(docs):
    return [[(ent.start, ent.end, ent.label_) for ent in doc.ents] for doc in docs]


@pytest.mark.parametrize("zone", [False, True])
def test_new_words_are_forgotten(nlp, zone):
    pipe = nlp.get_pipe("tener_ner")
    start = 1_000_000 if zone else 0

    def serve(first):
        if zone:
            with nlp.memory_zone():
                found(nlp.pipe(docs(nlp, first, WORDS)))
        else:
            found(nlp.pipe(docs(nlp, first, WORDS)))

    serve(start)
    before, strings = size_of(pipe.model), len(nlp.vocab.strings)
    serve(start + WORDS)
    # The caches may be fuller than before, to their bound: a key and a number of eight bytes each, twice while merging.
    assert size_of(pipe.model) - before <= 2 * 16 * MOST
    assert (len(nlp.vocab.strings) == strings) == zone


def test_what_a_zone_taught_the_caches_stays_right_after_it(nlp):
    """The strings of a zone are freed behind it, and the hashes that the caches know them by are not."""
    expected = found(nlp.pipe(docs(nlp, 2_000_000, 200)))
    fresh = list(docs(nlp, 3_000_000, 200))
    with nlp.memory_zone():
        assert found(nlp.pipe(docs(nlp, 2_000_000, 200))) == expected
        zoned = found(nlp.pipe(docs(nlp, 4_000_000, 200)))
    # Other strings than those of the zone first, so that its memory is used for something else.
    outside = found(nlp.pipe(fresh))
    assert found(nlp.pipe(docs(nlp, 4_000_000, 200))) == zoned
    with nlp.memory_zone():
        assert found(nlp.pipe(docs(nlp, 3_000_000, 200))) == outside
        assert found(nlp.pipe(docs(nlp, 4_000_000, 200))) == zoned


@pytest.mark.slow
def test_memory_of_200_000_new_words(nlp, monkeypatch):
    monkeypatch.undo()
    before = size_of(nlp.get_pipe("tener_ner").model)
    with nlp.memory_zone():
        for _ in nlp.pipe(docs(nlp, 5_000_000, 200_000)):
            pass
    assert size_of(nlp.get_pipe("tener_ner").model) - before <= 4 * 16 * 200_000
