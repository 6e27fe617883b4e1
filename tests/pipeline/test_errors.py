"""Invalid settings, labels, examples and calls raise errors that name the problem and how to fix it."""

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


@pytest.mark.parametrize(("name", "expected_type"), [("window", "a valid integer"), ("spans_key", "a valid string")])
def test_setting_of_wrong_type_raises_error(blank, name, expected_type):
    nlp = blank()
    nlp.get_pipe("tener_ner").cfg[name] = 0.5
    with pytest.raises(ValueError, match=re.escape(f"tener_ner: {name} must be {expected_type}; got 0.5. Correct")):
        nlp(TEXT)


@pytest.mark.parametrize("model_type", ["another tagger", "a tok2vec", "our tok2vec"])
def test_model_without_crf_raises_error(tiny_hash_embed, tiny_model, make_examples, model_type):
    tagger = {"@architectures": "spacy.Tagger.v2", "tok2vec": tiny_hash_embed}
    model = {"another tagger": tagger, "a tok2vec": tiny_hash_embed, "our tok2vec": tiny_model["tok2vec"]}[model_type]
    nlp = spacy.blank("zh")
    pipe = nlp.add_pipe("tener_ner", config={"model": model})
    with pytest.raises(ValueError, match=r"'tener_ner' needs.*spacy_tener.CRFTagger.v1"):
        nlp.initialize(lambda: make_examples(nlp))
    with pytest.raises(ValueError, match=r"'tener_ner' needs.*spacy_tener.CRFTagger.v1"):
        pipe.add_label("NEW")


@pytest.mark.parametrize("train_first", [False, True])
def test_unknown_label_in_examples_raises_error(blank, learn, make_examples, train_first):
    nlp = blank()
    if train_first:
        learn(nlp, make_examples(nlp), steps=1)
    with pytest.raises(ValueError, match=r"'PLANET'.*add_label.*initialize.*火星很远"):
        nlp.update(make_examples(nlp, [("火星很远", [(0, 2, "PLANET")])]))


def test_label_missing_from_initialize_labels_raises_error(blank, make_examples):
    nlp = blank()
    nlp.get_pipe("tener_ner").initialize(lambda: make_examples(nlp), nlp=nlp, labels=["PER"])
    with pytest.raises(ValueError, match="'GPE'"):
        nlp.update(make_examples(nlp, [(TEXT, FOUND)]))


def test_initialize_labels_as_string_raises_error(blank, make_examples):
    pipe = blank().get_pipe("tener_ner")
    with pytest.raises(ValueError, match=r"must be a list, not the string 'PER'"):
        pipe.initialize(lambda: make_examples(blank()), labels="PER")
    assert pipe.labels == ()


@pytest.mark.parametrize("label", ["", " ", "\n"])
def test_empty_label_raises_error(learned, label):
    pipe = learned().get_pipe("tener_ner")
    with pytest.raises(ValueError, match="a label must be a non-empty string"):
        pipe.add_label(label)
    assert pipe.labels == ("GPE", "ORG", "PER")


def test_update_before_initialization_raises_error(blank, make_examples):
    nlp = blank()
    for label in ("PER", "GPE"):
        nlp.get_pipe("tener_ner").add_label(label)
    with pytest.raises(ValueError, match=r"initialize\(\)"):
        nlp.update(make_examples(nlp, [(TEXT, FOUND)]))


def test_update_and_rehearse_require_example_objects(learned):
    pipe = learned().get_pipe("tener_ner")
    for method in (pipe.update, pipe.rehearse):
        with pytest.raises(TypeError, match="E978"):
            method([TEXT])


def test_initialize_requires_function_that_returns_examples(blank):
    pipe = blank().get_pipe("tener_ner")
    for invalid in ([], lambda: [TEXT], None):
        with pytest.raises(TypeError, match=r"E930|E978"):
            pipe.initialize(invalid)


def test_multiprocessing_on_gpu_raises_error(learned, monkeypatch):
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    monkeypatch.setattr(pipe.model, "ops", SimpleNamespace(name="cupy", xp=np))
    with pytest.raises(ValueError, match=r"'tener_ner' is on a GPU.*n_process=1.*require_cpu"):
        list(nlp.pipe([TEXT] * 4, n_process=2, batch_size=2))


class TestErrorHandler:
    """As in all trainable components of spaCy, the error handler is called, and the failing batch is skipped."""

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

    def test_failing_batch_is_removed_from_stream(self, nlp, calls, entities_of):
        docs = list(nlp.pipe([TEXT, "坏", "京", ""], batch_size=1))
        assert [entities_of(doc) for doc in docs] == [FOUND, [(0, 1, "GPE")], []]
        assert calls == [("tener_ner", ["坏"], "broken")]

    def test_error_removes_all_docs_of_batch(self, nlp, calls):
        assert [doc.text for doc in nlp.pipe([TEXT, "坏", "京"], batch_size=2)] == ["京"]
        assert calls == [("tener_ner", [TEXT, "坏"], "broken")]

    def test_default_handler_raises_error(self, nlp):
        nlp.set_error_handler(raise_error)
        with pytest.raises(RuntimeError, match="broken"):
            nlp("坏")
        with pytest.raises(RuntimeError, match="broken"):
            list(nlp.pipe([TEXT, "坏"]))


def test_invalid_biluo_annotation_raises_error(learned):
    nlp = learned()
    with pytest.raises(ValueError, match="E067"):
        nlp.update([Example.from_dict(nlp.make_doc(TEXT), {"entities": ["O", "I-PER", *["O"] * 5]})])


def test_inside_token_without_begin_token_is_kept(learned):
    """A Doc that was created manually may contain an I token without a B token. Prediction does not fail."""
    nlp = learned()
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * 7)
    per = nlp.vocab.strings["PER"]
    for first in (1, 2, 6):
        broken = doc.copy()
        column = [[1, per] if i == first else [0, 0] for i in range(7)]
        broken.from_array(["ENT_IOB", "ENT_TYPE"], np.array(column, dtype=np.uint64))
        found = nlp.get_pipe("tener_ner")(broken)
        assert (first, first + 1, "PER") in [(ent.start, ent.end, ent.label_) for ent in found.ents]
