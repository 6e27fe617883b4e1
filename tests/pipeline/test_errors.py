"""What cannot work is refused with one clear message that names the thing and the remedy."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import raise_error

from spacy_tener.pipeline.units import view_of

TEXT = "王小明去了上海"
FOUND = [(0, 3, "PER"), (5, 7, "GPE")]


@pytest.mark.parametrize(("name", "wanted"), [("window", "a valid integer"), ("spans_key", "a valid string")])
def test_settings_of_another_type_name_theirs(blank, name, wanted):
    nlp = blank()
    nlp.get_pipe("tener_ner").cfg[name] = 0.5
    with pytest.raises(ValueError, match=re.escape(f"tener_ner: {name} must be {wanted}; got 0.5. Correct")):
        nlp(TEXT)


@pytest.mark.parametrize("kind", ["another tagger", "a tok2vec", "our tok2vec"])
def test_a_model_without_a_crf_is_refused(tiny_hash_embed, tiny_model, make_examples, kind):
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": tiny_hash_embed}
    model = {"another tagger": tagger, "a tok2vec": tiny_hash_embed, "our tok2vec": tiny_model["tok2vec"]}[kind]
    nlp = spacy.blank("zh")
    pipe = nlp.add_pipe("tener_ner", config={"model": model})
    with pytest.raises(ValueError, match=r"'tener_ner' needs.*spacy_tener.CRFTagger.v1"):
        nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(ValueError, match=r"'tener_ner' needs.*spacy_tener.CRFTagger.v1"):
        pipe.add_label("NEW")


@pytest.mark.parametrize("train_first", [False, True])
def test_a_label_of_the_data_that_the_component_does_not_have_is_named(blank, learn, make_examples, train_first):
    nlp = blank()
    if train_first:
        learn(nlp, make_examples(nlp), steps=1)
    with pytest.raises(ValueError, match=r"'PLANET'.*add_label.*initialize.*火星很远"):
        nlp.update(make_examples(nlp, [("火星很远", [(0, 2, "PLANET")])]))


def test_labels_given_to_initialization_must_hold_those_of_the_data(blank, make_examples):
    nlp = blank()
    nlp.get_pipe("tener_ner").initialize(lambda: make_examples(nlp), nlp=nlp, labels=["PER"])
    with pytest.raises(ValueError, match="'GPE'"):
        nlp.update(make_examples(nlp, [(TEXT, FOUND)]))


def test_labels_given_as_one_string_are_refused(blank, make_examples):
    pipe = blank().get_pipe("tener_ner")
    with pytest.raises(ValueError, match=r"must be a list, not the string 'PER'"):
        pipe.initialize(lambda: make_examples(blank()), labels="PER")
    assert pipe.labels == ()


@pytest.mark.parametrize("label", ["", " ", "\n"])
def test_a_label_needs_a_name(learned, label):
    pipe = learned().get_pipe("tener_ner")
    with pytest.raises(ValueError, match="a label must be a non-empty string"):
        pipe.add_label(label)
    assert pipe.labels == ("GPE", "ORG", "PER")


def test_training_before_initialization_names_the_remedy(blank, make_examples):
    nlp = blank()
    for label in ("PER", "GPE"):
        nlp.get_pipe("tener_ner").add_label(label)
    with pytest.raises(ValueError, match=r"initialize\(\)"):
        nlp.update(make_examples(nlp, [(TEXT, FOUND)]))


def test_examples_must_be_examples(learned):
    pipe = learned().get_pipe("tener_ner")
    for method in (pipe.update, pipe.rehearse):
        with pytest.raises(TypeError, match="E978"):
            method([TEXT])


def test_initialization_needs_examples_from_a_function(blank):
    pipe = blank().get_pipe("tener_ner")
    for wrong in ([], lambda: [TEXT], None):
        with pytest.raises(TypeError, match=r"E930|E978"):
            pipe.initialize(wrong)


def test_workers_cannot_use_a_gpu_and_the_remedy_is_named(learned, monkeypatch):
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    monkeypatch.setattr(pipe.model, "ops", SimpleNamespace(name="cupy", xp=np))
    with pytest.raises(ValueError, match=r"'tener_ner' is on a GPU.*n_process=1.*require_cpu"):
        list(nlp.pipe([TEXT] * 4, n_process=2, batch_size=2))


class TestErrorHandler:
    """As every trainable component of spaCy: the handler is told, and the failing batch is left out."""

    @pytest.fixture
    def calls(self):
        return []

    @pytest.fixture
    def nlp(self, learned, calls, monkeypatch):
        nlp = learned()

        def fail(doc, view):
            if "坏" in doc.text:
                raise RuntimeError("broken")
            return view_of(doc, view)

        monkeypatch.setattr("spacy_tener.pipeline.tener_ner.view_of", fail)
        nlp.set_error_handler(lambda name, pipe, docs, error: calls.append((name, [d.text for d in docs], str(error))))
        return nlp

    def test_the_failing_batch_is_left_out_of_the_stream(self, nlp, calls, entities_of):
        docs = list(nlp.pipe([TEXT, "坏", "京", ""], batch_size=1))
        assert [entities_of(doc) for doc in docs] == [FOUND, [(0, 1, "GPE")], []]
        assert calls == [("tener_ner", ["坏"], "broken")]

    def test_a_batch_fails_as_a_whole(self, nlp, calls):
        assert [doc.text for doc in nlp.pipe([TEXT, "坏", "京"], batch_size=2)] == ["京"]
        assert calls == [("tener_ner", [TEXT, "坏"], "broken")]

    def test_without_a_handler_the_error_is_raised(self, nlp):
        nlp.set_error_handler(raise_error)
        with pytest.raises(RuntimeError, match="broken"):
            nlp("坏")
        with pytest.raises(RuntimeError, match="broken"):
            list(nlp.pipe([TEXT, "坏"]))


def test_annotation_that_spacy_itself_refuses_is_refused(learned):
    nlp = learned()
    with pytest.raises(ValueError, match="E067"):
        nlp.update([Example.from_dict(nlp.make_doc(TEXT), {"entities": ["O", "I-PER", *["O"] * 5]})])


def test_an_entity_that_begins_nowhere_is_left_as_it_is(learned):
    """A Doc put together by hand may hold an I without its B: prediction does not fail on it."""
    nlp = learned()
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * 7)
    per = nlp.vocab.strings["PER"]
    for first in (1, 2, 6):
        broken = doc.copy()
        column = [[1, per] if i == first else [0, 0] for i in range(7)]
        broken.from_array(["ENT_IOB", "ENT_TYPE"], np.array(column, dtype=np.uint64))
        found = nlp.get_pipe("tener_ner")(broken)
        assert (first, first + 1, "PER") in [(ent.start, ent.end, ent.label_) for ent in found.ents]
