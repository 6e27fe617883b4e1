"""Training: labels, losses, gradients, optimizers, rehearsal, and learning rates of loaded pipelines."""

from itertools import islice

import numpy as np
import pytest
import spacy
import torch
from losses import get_loss
from spacy.training import Example
from thinc.api import Adam, fix_random_seed

from spacy_tener.embedders.tables import table_embedders
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.nn.shim import forget_gradients
from spacy_tener.optim.optimizers import SGD, triangular

TEXT = "王小明去了上海"
FOUND = [(0, 3, "PER"), (5, 7, "GPE")]
# Sentences whose annotation differs from the predictions of the overfitted pipeline.
CONFLICTING = [(TEXT, [(0, 2, "ORG")]), ("京", []), ("今天天气很好", [(0, 2, "PER")])]
ENGLISH = [
    ("Ada Lovelace lives in London .", [(0, 12, "PER"), (22, 28, "GPE")]),
    ("Nobody was there .", []),
    ("Paris", [(0, 5, "GPE")]),
]


@pytest.mark.parametrize(("lang", "data"), [("zh", None), ("en", ENGLISH)])
def test_default_config_overfits_training_data(lang, data, make_examples, sentences, entities_of):
    nlp = spacy.blank(lang)
    pipe = nlp.add_pipe("tener_ner")
    examples = make_examples(nlp, data or sentences)
    optimizer = nlp.initialize(lambda: examples)
    losses = [nlp.update(examples, sgd=optimizer, losses={})["tener_ner"] for _ in range(30)]
    assert np.mean(losses[-5:]) < 0.3 * losses[0]
    assert pipe.labels == tuple(sorted(pipe.labels))
    found = [entities_of(nlp(text)) for text, _ in (data or sentences)]
    assert found == [entities for _, entities in (data or sentences)]


def test_initialize_uses_given_labels_in_order(blank, make_examples):
    nlp = blank()
    pipe = nlp.get_pipe("tener_ner")
    pipe.initialize(lambda: make_examples(nlp), nlp=nlp, labels=["PER", "GPE"])
    assert pipe.labels == ("PER", "GPE")
    assert pipe.label_data == ["PER", "GPE"]


def test_labels_added_before_initialization_come_first(blank, make_examples, learn, entities_of):
    nlp = blank()
    nlp.get_pipe("tener_ner").add_label("PER")
    nlp.get_pipe("tener_ner").add_label("TITLE")
    learn(nlp, make_examples(nlp))
    assert nlp.get_pipe("tener_ner").labels == ("PER", "TITLE", "GPE", "ORG")
    assert entities_of(nlp(TEXT)) == FOUND


def test_gradients_accumulate_over_updates(learned, make_examples, gradients):
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    for half in (CONFLICTING[:1] * 2, CONFLICTING[1:]):
        pipe.update(make_examples(nlp, half))
    accumulated = gradients(pipe)
    copy = learned()
    copied_pipe = copy.get_pipe("tener_ner")
    copied_pipe.update(make_examples(copy, CONFLICTING[:1] * 2 + CONFLICTING[1:]))
    expected = gradients(copied_pipe)
    assert expected.keys() == accumulated.keys()
    for name, gradient in expected.items():
        # The loss is a mean over examples, so the gradients of two halves add up to twice the gradient of all examples.
        torch.testing.assert_close(accumulated[name], 2 * gradient, rtol=1e-3, atol=1e-5)


def test_loss_is_mean_over_examples(learned, make_examples):
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    examples = make_examples(nlp, CONFLICTING)
    alone = [pipe.update([example], losses={})["tener_ner"] for example in examples]
    assert pipe.update(examples, losses={})["tener_ner"] == pytest.approx(np.mean(alone), rel=1e-4)


def test_penalty_is_averaged_and_added_to_loss(tiny_model, tok2vecs, blank):
    """Compare the penalty of one text, of four equal texts, and of a text that is split into windows."""

    def loss(copies, penalty, **config):
        fix_random_seed(0)
        # A high temperature removes almost all noise from the selection.
        nlp = blank(
            model={**tiny_model, "tok2vec": {**tok2vecs["FLAT_ATSSA"], "penalty": penalty, "tau": 1e9}}, **config
        )
        examples = [Example.from_dict(nlp.make_doc(TEXT), {"entities": FOUND}) for _ in range(copies)]
        nlp.initialize(lambda: examples)
        return nlp.get_pipe("tener_ner").update(examples, losses={})["tener_ner"]

    several = {"window": 9, "overlap": 1, "max_units": 9}
    costs = [loss(n, 1.0, **config) - loss(n, 0.0, **config) for n, config in ((1, {}), (4, {}), (4, several))]
    assert costs == pytest.approx([costs[0]] * 3, rel=1e-3)
    assert costs[0] > 1.0


def test_get_loss_equals_loss_and_gradients_of_update(learned, make_examples, gradients):
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    examples = make_examples(nlp, CONFLICTING)
    scores, backprop = pipe.model.begin_update([example.predicted for example in examples])
    loss, d_scores = get_loss(pipe, examples, scores)
    backprop(d_scores)
    direct_gradients = gradients(pipe)
    assert [d.shape for d in d_scores] == [score.shape for score in scores]
    copy = learned()
    expected = copy.get_pipe("tener_ner").update(make_examples(copy, CONFLICTING), losses={})["tener_ner"]
    assert loss == pytest.approx(expected, rel=1e-5)
    update_gradients = gradients(copy.get_pipe("tener_ner"))
    assert {name for name in update_gradients if name not in direct_gradients} == {
        name for name in update_gradients if ".crf." in name
    }
    for name, gradient in direct_gradients.items():
        torch.testing.assert_close(gradient, update_gradients[name], rtol=1e-4, atol=1e-7)


def test_same_seed_gives_same_weights(blank, learn, make_examples):
    def once():
        fix_random_seed(7)
        nlp = blank()
        learn(nlp, make_examples(nlp), steps=3)
        return nlp.get_pipe("tener_ner").model.to_bytes()

    assert once() == once()


def test_nan_scores_raise_error(learned, make_examples, torch_parameters):
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    with torch.no_grad():
        next(iter(torch_parameters(pipe).values())).fill_(float("nan"))
    with pytest.raises(ValueError, match=r"E910.*tener_ner"):
        nlp.update(make_examples(nlp))


def test_failed_update_clears_gradients(learned, make_examples, torch_parameters, gradients):
    """If the loss of the second batch is NaN, the gradients of the first batch are discarded as well."""
    nlp = learned(window=20, overlap=6, max_units=20)
    pipe = nlp.get_pipe("tener_ner")
    [table] = [value for name, value in torch_parameters(pipe).items() if name.endswith("tables.unigram")]
    bad = nlp.make_doc("鲸" * 20)
    pipe.update([Example.from_dict(bad, {"entities": []})])  # adds an embedding row for the character
    forget_gradients(pipe.model)
    shim = table_embedders(pipe.model)[0]
    vocabulary = shim.attrs["vocabulary"]
    rows = vocabulary.tables["unigram"].rows(vocabulary.to_input(TokenBatch.of([bad])).keys["unigram"])
    [table] = [value for name, value in torch_parameters(pipe).items() if name.endswith("tables.unigram")]
    with torch.no_grad():
        table[torch.from_numpy(rows)] = float("nan")
    good = make_examples(nlp)[:1]
    with pytest.raises(ValueError, match="E910"):
        pipe.update([*good, Example.from_dict(bad, {"entities": []})])
    assert not gradients(pipe)


def test_update_learns_unseen_characters(learned, learn, make_examples, entities_of):
    nlp = learned()
    data = [("鲸鱼喜欢渤海", [(4, 6, "GPE")])]
    learn(nlp, make_examples(nlp, data), optimizer=Adam(0.01), steps=40)
    assert entities_of(nlp("鲸鱼喜欢渤海")) == [(4, 6, "GPE")]


class TestRehearsal:
    CONFLICTING_EXAMPLE = (TEXT, [(0, 2, "ORG")])

    @pytest.fixture
    def nlp(self, learned):
        return learned()

    def test_rehearsal_restores_forgotten_predictions(self, nlp, learn, make_examples):
        pipe = nlp.get_pipe("tener_ner")

        def probability():
            return next(pipe.decode([nlp.make_doc(TEXT)])).probabilities([(0, 3, "PER")])[0]

        before = probability()
        nlp.resume_training()
        learn(nlp, make_examples(nlp, [self.CONFLICTING_EXAMPLE]), optimizer=Adam(0.01), steps=20)
        forgotten = probability()
        assert forgotten < 0.1 < 0.9 < before
        raw = [Example(nlp.make_doc(TEXT), nlp.make_doc(TEXT))]
        sgd = Adam(0.01)
        losses = [pipe.rehearse(raw, sgd=sgd, losses={})["tener_ner"] for _ in range(40)]
        assert losses[-1] < losses[0]
        assert probability() > 0.9

    def test_unchanged_model_has_zero_gradients(self, nlp, make_examples, gradients):
        pipe = nlp.get_pipe("tener_ner")
        nlp.resume_training()
        pipe.rehearse(make_examples(nlp))
        assert max(float(gradient.abs().max()) for gradient in gradients(pipe).values()) < 1e-5

    def test_nlp_rehearse_supports_adam_and_sgd(self, nlp, make_examples):
        examples = make_examples(nlp, [("火星很远", [])])
        for make_optimizer in (Adam, SGD):
            nlp.resume_training(sgd=make_optimizer(0.01))
            for _ in range(3):
                losses = nlp.rehearse(examples, losses={})
            assert losses["tener_ner"] >= 0.0

    def test_embedding_tables_can_grow_between_rehearsals(self, nlp, make_examples):
        nlp.resume_training(sgd=Adam(0.01))
        for start in range(0x4E00, 0x4F00, 64):
            text = "".join(map(chr, range(start, start + 64)))
            assert nlp.rehearse(make_examples(nlp, [(text, [])]), losses={})["tener_ner"] >= 0.0

    def test_label_can_be_added_after_resume_training(self, nlp, make_examples):
        nlp.resume_training()
        nlp.get_pipe("tener_ner").add_label("NEW")
        assert nlp.rehearse(make_examples(nlp), losses={})["tener_ner"] >= 0.0

    def test_empty_docs_are_ignored(self, nlp, make_examples):
        nlp.resume_training()
        pipe = nlp.get_pipe("tener_ner")
        assert pipe.rehearse(make_examples(nlp, [("", [])]), losses={}) == {}
        alone = pipe.rehearse(make_examples(nlp, [(TEXT, [])]), losses={})["tener_ner"]
        among = pipe.rehearse(make_examples(nlp, [("", []), (TEXT, []), ("", [])]), losses={})["tener_ner"]
        assert among == pytest.approx(alone, rel=1e-5)


class TestResumedTraining:
    """A loaded pipeline with a learning rate schedule that starts near zero, as in the packaged configs."""

    @pytest.fixture
    def loaded(self, learned, tmp_path):
        nlp = learned()
        nlp.config["training"]["optimizer"]["learn_rate"] = {
            "@schedules": "spacy_tener.triangular.v1",
            "max_rate": 0.01,
            "total_steps": 255,
            "warmup": 0.05,
        }
        nlp.to_disk(tmp_path)
        nlp = spacy.load(tmp_path)
        nlp.get_pipe("tener_ner").add_label("NEW")
        return nlp

    @pytest.mark.parametrize("is_passed", [True, False], ids=["passed to update", "of the pipeline"])
    def test_new_label_is_learned_in_update_loop(self, loaded, make_examples, entities_of, is_passed):
        optimizer = loaded.resume_training()
        examples = make_examples(loaded, [(TEXT, [(0, 3, "NEW")])])
        for _ in range(50):
            loss = loaded.update(examples, sgd=optimizer if is_passed else None)["tener_ner"]
        assert loss < 0.05
        assert entities_of(loaded(TEXT)) == [(0, 3, "NEW")]

    @pytest.mark.parametrize("components", [1, 2])
    def test_learning_rate_warms_up_and_stays_constant(self, loaded, learned, make_examples, components):
        if components == 2:
            loaded.add_pipe("tener_ner", name="second", source=learned())
        optimizer = loaded.resume_training()
        examples, rates = make_examples(loaded, [(TEXT, [])]), []
        for _ in range(20):
            loaded.update(examples, sgd=optimizer)
            rates.append(optimizer.learn_rate)
        assert rates[:12] == list(islice(triangular(0.01, 255, warmup=0.05), 12))
        assert max(rates) == pytest.approx(0.01, rel=0.1)
        assert rates[12:] == [rates[12]] * 8

    def test_step_schedules_follows_schedule(self, loaded, make_examples):
        optimizer = loaded.resume_training()
        examples, rates = make_examples(loaded, [(TEXT, [])]), []
        for _ in range(20):
            loaded.update(examples, sgd=optimizer)
            rates.append(optimizer.learn_rate)
            optimizer.step_schedules()
        assert rates == list(islice(triangular(0.01, 255, warmup=0.05), 20))

    def test_manual_learning_rate_is_kept(self, loaded, make_examples):
        optimizer = loaded.resume_training()
        optimizer.learn_rate = 1e-6  # lower than the first rate of the schedule
        for _ in range(3):
            loaded.update(make_examples(loaded, [(TEXT, [])]), sgd=optimizer)
        assert optimizer.learn_rate == 1e-6
