"""Components that share layers or pipelines: listeners, frozen and annotating components, sourced components."""

import numpy as np
import pytest
import spacy
from spacy.language import Language
from spacy.pipeline.tok2vec import Tok2VecListener
from spacy.training import Example
from thinc.api import Adam, fix_random_seed

TEXT = "王小明去了上海"
FOUND = [(0, 3, "PER"), (5, 7, "GPE")]
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}


def tagger_over(tok2vec):
    return {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": tok2vec}


@pytest.fixture
def make_listening_pipeline(tiny_hash_embed):
    """Create a pipeline whose `tener_ner` listens to a shared tok2vec component of spaCy."""

    def make(**config):
        nlp = spacy.blank("zh")
        nlp.add_pipe("tok2vec", config={"model": tiny_hash_embed})
        nlp.add_pipe("tener_ner", config={"model": tagger_over(LISTENER), **config})
        return nlp

    return make


def parameters(pipe):
    """Return copies of all parameters of Thinc."""
    return {
        (i, name): node.get_param(name).copy()
        for i, node in enumerate(pipe.model.walk())
        for name in node.param_names
        if node.has_param(name)
    }


def has_changed(before, after):
    return any(not np.array_equal(before[key], after[key]) for key in before)


class TestListener:
    def test_training_updates_shared_tok2vec(
        self, make_listening_pipeline, learn, make_examples, sentences, entities_of
    ):
        nlp = make_listening_pipeline()
        examples = make_examples(nlp)
        optimizer = nlp.initialize(lambda: examples)
        optimizer.learn_rate = 0.01
        before = parameters(nlp.get_pipe("tok2vec"))
        learn(nlp, examples, optimizer=optimizer)
        assert has_changed(before, parameters(nlp.get_pipe("tok2vec")))
        for text, entities in sentences:
            assert entities_of(nlp(text)) == entities
        assert [entities_of(doc) for doc in nlp.pipe(["", TEXT, "", "京"])] == [[], FOUND, [], [(0, 1, "GPE")]]

    def test_tok2vec_is_shared_with_spacy_ner(
        self, make_listening_pipeline, tiny_ner, learn, make_examples, entities_of
    ):
        nlp = make_listening_pipeline()
        nlp.add_pipe("ner", config={"model": {**tiny_ner, "tok2vec": LISTENER}}, before="tener_ner")
        assert len(nlp.get_pipe("tok2vec").listeners) == 2
        learn(nlp, make_examples(nlp))
        for name in ("ner", "tener_ner"):
            with nlp.select_pipes(enable=["tok2vec", name]):
                assert entities_of(nlp(TEXT)) == FOUND

    @pytest.mark.parametrize("other_pipes", [["tagger"], []], ids=["with a tagger", "alone"])
    @pytest.mark.parametrize("texts", [[TEXT, "", "京"], ["", ""]], ids=["texts", "empty"])
    def test_unannotated_batch_passes_on_gradient_of_other_pipes(self, tiny_hash_embed, other_pipes, texts):
        def gradient(names):
            nlp = spacy.blank("zh")
            tok2vec = nlp.add_pipe("tok2vec", config={"model": tiny_hash_embed})
            if "tagger" in names:
                nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENER}})
            if "tener_ner" in names:
                nlp.add_pipe("tener_ner", config={"model": tagger_over(LISTENER)}).add_label("PER")
            fix_random_seed(0)
            tags = [Example.from_dict(nlp.make_doc(text), {"tags": ["N", "V"] * 3 + ["N"]}) for text in [TEXT]]
            nlp.initialize(lambda: tags)
            # Set the same weights for all combinations of components. None of the weights are zero.
            for pipe in ("tok2vec", *other_pipes):
                for i, node in enumerate(nlp.get_pipe(pipe).model.walk()):
                    for name in node.param_names:
                        shape = node.get_param(name).shape
                        node.set_param(name, np.random.default_rng(i).normal(size=shape).astype("f"))
            batch = [Example.from_dict(nlp.make_doc(text), {"tags": (["N", "V"] * 4)[: len(text)]}) for text in texts]
            nlp.update(batch, sgd=False)
            found = [node.get_grad(n) for node in tok2vec.model.walk() for n in node.param_names if node.has_grad(n)]
            return sum(float(np.abs(array).sum()) for array in found)

        expected = gradient(other_pipes)
        assert gradient([*other_pipes, "tener_ner"]) == pytest.approx(expected, rel=1e-4)
        assert (expected > 1.0) == (other_pipes == ["tagger"] and any(texts))

    def test_unannotated_batch_does_not_change_encoder_weights(self, make_listening_pipeline, make_examples):
        encoder = {"@architectures": "spacy_tener.TENER.v1", "width": 16, "heads": 2, "embed": LISTENER}
        nlp = make_listening_pipeline(model=tagger_over(encoder))
        examples = make_examples(nlp)
        optimizer = nlp.initialize(lambda: examples)
        for _ in range(2):
            nlp.update(examples, sgd=optimizer)
        before = nlp.get_pipe("tener_ner").model.to_bytes()
        nlp.update([Example(nlp.make_doc(TEXT), nlp.make_doc(TEXT))], sgd=optimizer)
        assert nlp.get_pipe("tener_ner").model.to_bytes() == before

    def test_unannotated_docs_do_not_change_loss(self, make_listening_pipeline, make_examples):
        nlp = make_listening_pipeline()
        examples = make_examples(nlp)
        nlp.initialize(lambda: examples)
        unannotated = [Example(nlp.make_doc(text), nlp.make_doc(text)) for text in (TEXT, "")]
        plain, mixed = (nlp.update(batch, sgd=False, losses={}) for batch in (examples, examples + unannotated))
        assert mixed["tener_ner"] == pytest.approx(plain["tener_ner"], rel=1e-4)

    def test_listener_ignores_window_settings(self, make_listening_pipeline, learn, make_examples, entities_of):
        """The listener gets the vectors of complete Docs."""
        nlp = make_listening_pipeline(window=5, overlap=1, max_units=5)
        repeated_entities = [(start + 7 * i, end + 7 * i, label) for i in range(3) for start, end, label in FOUND]
        learn(nlp, make_examples(nlp, [(TEXT * 3, repeated_entities)]))
        assert entities_of(nlp(TEXT * 3)) == repeated_entities

    def test_listener_with_character_view_raises_error(
        self, make_listening_pipeline, jieba_nlp, tiny_hash_embed, make_examples
    ):
        for nlp in (jieba_nlp(), spacy.blank("en")):
            nlp.add_pipe("tok2vec", config={"model": tiny_hash_embed})
            nlp.add_pipe("tener_ner", config={"model": tagger_over(LISTENER), "view": "characters"})
            examples = make_examples(nlp, [("吴重阳在中国银行 工作", [])])
            with pytest.raises(ValueError, match=r"'characters'.*listener.*tok2vec of its own"):
                nlp.initialize(lambda examples=examples: examples)

    def test_replaced_listener_keeps_predictions_and_uses_windows(
        self, make_listening_pipeline, learn, make_examples, sentences, entities_of, tmp_path
    ):
        nlp = make_listening_pipeline(window=5, overlap=1, max_units=5)
        learn(nlp, make_examples(nlp))
        nlp.replace_listeners("tok2vec", "tener_ner", ["model.tok2vec"])
        pipe = nlp.get_pipe("tener_ner")
        assert not any(isinstance(node, Tok2VecListener) for node in pipe.model.walk())
        nlp.remove_pipe("tok2vec")
        nlp.to_disk(tmp_path)
        for copy in (nlp, spacy.load(tmp_path)):
            for text, entities in sentences:
                # The context of the windows is as large as that of the embedder: one token on both sides.
                assert entities_of(copy(text)) == entities

    def test_replaced_listener_can_be_trained(self, make_listening_pipeline, learn, make_examples, entities_of):
        nlp = make_listening_pipeline()
        learn(nlp, make_examples(nlp))
        nlp.replace_listeners("tok2vec", "tener_ner", ["model.tok2vec"])
        before = parameters(nlp.get_pipe("tener_ner"))
        learn(nlp, make_examples(nlp, [("火星很远", [(0, 2, "GPE")])]), optimizer=Adam(0.01))
        assert has_changed(before, parameters(nlp.get_pipe("tener_ner")))
        assert entities_of(nlp("火星很远")) == [(0, 2, "GPE")]

    def test_rehearsal_works_with_listener(self, make_listening_pipeline, learn, make_examples):
        nlp = make_listening_pipeline()
        learn(nlp, make_examples(nlp))
        pipe, tok2vec = nlp.get_pipe("tener_ner"), nlp.get_pipe("tok2vec")
        nlp.resume_training()
        examples = make_examples(nlp)
        for example in examples:
            tok2vec(example.predicted)
        tok2vec.update(examples)
        assert np.isfinite(pipe.rehearse(examples, losses={})["tener_ner"])


class TestFrozen:
    def test_frozen_component_is_not_trained(self, learned, tiny_hash_embed, make_examples, entities_of):
        nlp = learned()
        nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tiny_hash_embed}})
        nlp.get_pipe("tagger").add_label("N")
        examples = [Example.from_dict(nlp.make_doc(TEXT), {"tags": ["N"] * 7, "entities": ["O"] * 7})]
        nlp.get_pipe("tagger").initialize(lambda: examples, nlp=nlp)
        before = nlp.get_pipe("tener_ner").model.to_bytes()
        for _ in range(3):
            losses = nlp.update(examples, sgd=Adam(0.1), exclude=["tener_ner"], losses={})
        assert set(losses) == {"tagger"}
        assert nlp.get_pipe("tener_ner").model.to_bytes() == before
        assert entities_of(nlp(TEXT)) == FOUND

    def test_annotating_component_passes_entities_to_later_pipes(self, learned, make_examples):
        nlp = learned()
        labels = []

        class Witness:
            def __call__(self, doc):
                return doc

            def update(self, examples, **kwargs):
                labels.extend([ent.label_ for ent in example.predicted.ents] for example in examples)

        Language.factory("witness", func=lambda nlp, name: Witness())
        nlp.add_pipe("witness")
        nlp.update(make_examples(nlp, [(TEXT, FOUND)]), sgd=Adam(0.0), annotates=["tener_ner"])
        nlp.update(make_examples(nlp, [(TEXT, FOUND)]), sgd=Adam(0.0), exclude=["tener_ner"], annotates=["tener_ner"])
        nlp.update(make_examples(nlp, [(TEXT, FOUND)]), sgd=Adam(0.0))
        assert labels == [["PER", "GPE"], ["PER", "GPE"], []]


class TestSourced:
    def test_sourced_component_predicts_same_entities(self, learned, sentences, entities_of, tmp_path):
        sourcing = spacy.blank("zh")
        sourcing.add_pipe("tener_ner", source=learned(), name="sourced")
        sourcing.to_disk(tmp_path)
        for nlp in (sourcing, spacy.load(tmp_path)):
            assert nlp.pipe_names == ["sourced"]
            for text, entities in sentences:
                assert entities_of(nlp(text)) == entities

    def test_training_copy_does_not_change_original(self, learned, learn, make_examples, entities_of):
        nlp = learned()
        copy = spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())
        before = nlp.get_pipe("tener_ner").model.to_bytes()
        learn(copy, make_examples(copy, [(TEXT, [])]), optimizer=Adam(0.01), steps=10)
        assert nlp.get_pipe("tener_ner").model.to_bytes() == before
        assert entities_of(copy(TEXT)) == []
