"""Compatibility with spaCy's `ner`: all tests run with both components and expect the same behaviour."""

import pickle

import pytest
import spacy
from spacy.tokens import Doc, Span
from spacy.training import Example

TEXT = "王小明去了上海"
FOUND = [(0, 3, "PER"), (5, 7, "GPE")]


@pytest.fixture
def nlp(factory, learned):
    return learned(factory)


@pytest.fixture
def pipe(nlp, factory):
    return nlp.get_pipe(factory)


def iob_of(doc):
    return "".join(token.ent_iob_ or "-" for token in doc)


def test_predictions_are_written_to_ents_and_tokens(nlp, sentences, entities_of):
    for text, entities in sentences:
        assert entities_of(nlp(text)) == entities
    doc = nlp(TEXT)
    assert iob_of(doc) == "BIIOOBI"
    assert [token.ent_type_ for token in doc] == ["PER"] * 3 + [""] * 2 + ["GPE"] * 2


def test_labels_are_sorted_alphabetically(pipe):
    assert pipe.labels == ("GPE", "ORG", "PER")


def test_add_label_returns_one_for_new_labels_only(pipe):
    assert pipe.add_label("NEW") == 1
    assert pipe.add_label("NEW") == 0
    assert "NEW" in pipe.labels


def test_non_string_label_raises_error(pipe):
    with pytest.raises((ValueError, TypeError), match=r"(?i)only .*unicode"):
        pipe.add_label(3)


def test_add_label_does_not_change_predictions(nlp, pipe, entities_of, sentences):
    before = [entities_of(nlp(text)) for text, _ in sentences]
    pipe.add_label("NEW")
    assert [entities_of(nlp(text)) for text, _ in sentences] == before


def test_label_added_after_training_is_learned(blank, factory, learn, make_examples, entities_of):
    nlp = blank(factory)
    optimizer = learn(nlp, make_examples(nlp))
    nlp.get_pipe(factory).add_label("PLANET")
    learn(nlp, make_examples(nlp, [("火星很远", [(0, 2, "PLANET")]), (TEXT, FOUND)]), optimizer=optimizer)
    assert entities_of(nlp("火星很远")) == [(0, 2, "PLANET")]
    assert entities_of(nlp(TEXT)) == FOUND


def test_empty_and_single_token_docs_are_processed(nlp, entities_of):
    texts = ["", TEXT, "", " ", "京", "\n\n", ""]
    expected = [[], FOUND, [], [], [(0, 1, "GPE")], [], []]
    assert [entities_of(doc) for doc in nlp.pipe(texts)] == expected
    assert [entities_of(nlp(text)) for text in texts] == expected
    assert [entities_of(doc) for doc in nlp.pipe(["", ""])] == [[], []]


def test_update_accepts_empty_docs(nlp, pipe, make_examples):
    losses = pipe.update(make_examples(nlp, [("", []), (TEXT, FOUND), (" ", [])]), losses={})
    assert losses[pipe.name] >= 0.0
    assert pipe.update(make_examples(nlp, [("", [])]), losses={}) == {pipe.name: 0.0}


def test_update_without_examples_changes_nothing(nlp, pipe):
    before = pipe.model.to_bytes()
    assert nlp.update([], sgd=nlp.create_optimizer()) == {}
    assert pipe.update([], sgd=nlp.create_optimizer()) == {pipe.name: 0.0}
    assert pipe.model.to_bytes() == before


def test_update_without_annotation_changes_no_weights(nlp, pipe):
    examples = [Example(nlp.make_doc(TEXT), nlp.make_doc(TEXT))]
    before = pipe.model.to_bytes()
    assert nlp.update(examples, sgd=nlp.create_optimizer(), losses={}) == {pipe.name: 0.0}
    assert pipe.model.to_bytes() == before


def test_existing_entities_and_ids_are_kept(nlp, pipe):
    doc = nlp.make_doc(TEXT)
    doc.set_ents([Span(doc, 0, 2, label="ORG", kb_id="Q42", span_id="S7")], default="missing")
    doc = pipe(doc)
    existing, *found = doc.ents
    assert (existing.text, existing.label_, existing.kb_id_, existing.id_) == ("王小", "ORG", "Q42", "S7")
    assert (found[-1].text, found[-1].label_) == ("上海", "GPE")
    assert all(ent.start >= 2 for ent in found)


def test_outside_tokens_can_become_entities(nlp, pipe, annotated, entities_of):
    assert entities_of(pipe(annotated(nlp, TEXT, outside=[(0, len(TEXT))]))) == FOUND


def test_entities_are_found_with_annotated_sentence_starts(nlp, pipe, entities_of):
    doc = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * 7, sent_starts=[True] + [False] * 6)
    assert entities_of(pipe(doc)) == FOUND


def test_multiprocessing_gives_same_predictions(nlp, entities_of):
    texts = [TEXT, "", "京", "吴重阳在中国银行工作。", " "] * 2
    expected = [entities_of(doc) for doc in nlp.pipe(texts)]
    assert [entities_of(doc) for doc in nlp.pipe(texts, n_process=2, batch_size=3)] == expected


def test_pipe_as_tuples_returns_context(nlp, entities_of):
    pairs = nlp.pipe([(TEXT, {"id": 1}), ("", {"id": 2}), ("京", {"id": 3})], as_tuples=True)
    assert [(entities_of(doc), context["id"]) for doc, context in pairs] == [(FOUND, 1), ([], 2), ([(0, 1, "GPE")], 3)]


def test_component_can_be_pickled(nlp, pipe, entities_of):
    copy = pickle.loads(pickle.dumps(pipe))
    assert entities_of(copy(nlp.make_doc(TEXT))) == FOUND
    assert copy.labels == pipe.labels


def test_untrained_component_can_be_saved_and_loaded(blank, factory, tmp_path):
    blank(factory).to_disk(tmp_path)
    assert spacy.load(tmp_path).pipe_names == [factory]


def test_untrained_component_raises_error_for_text(blank, factory):
    with pytest.raises(ValueError, match=r"initialize\(\)"):
        blank(factory)(TEXT)


def test_untrained_component_accepts_empty_docs(blank, factory):
    assert not blank(factory)("").ents


def test_initialization_without_entities_predicts_no_entities(blank, factory, make_examples, entities_of):
    nlp = blank(factory)
    examples = make_examples(nlp, [(TEXT, []), ("京", [])])
    optimizer = nlp.initialize(lambda: examples)
    nlp.update(examples, sgd=optimizer)
    assert nlp.get_pipe(factory).labels == ()
    assert entities_of(nlp(TEXT)) == []


def test_second_initialization_resets_weights(blank, factory, learn, make_examples, entities_of):
    nlp = blank(factory)
    examples = make_examples(nlp)
    learn(nlp, examples)
    assert entities_of(nlp(TEXT)) == FOUND
    nlp.initialize(lambda: examples)
    assert entities_of(nlp(TEXT)) != FOUND


def test_use_params_replaces_weights_temporarily(nlp, pipe, make_examples):
    before = pipe.model.to_bytes()
    averages = {}
    for node in pipe.model.walk():
        averages.update(
            {(node.id, name): node.get_param(name) * 0 for name in node.param_names if node.has_param(name)}
        )
        for shim in node.shims:
            averages.update({(shim.id, name): p.detach().numpy() * 0 for name, p in shim.module.named_parameters()})
    with nlp.use_params(averages):
        assert pipe.model.to_bytes() != before
    assert pipe.model.to_bytes() == before


def test_rehearse_requires_resume_training(nlp, pipe, make_examples):
    before = pipe.model.to_bytes()
    assert not pipe.rehearse(make_examples(nlp), sgd=nlp.create_optimizer())
    assert pipe.model.to_bytes() == before
    nlp.resume_training()
    assert set(nlp.rehearse(make_examples(nlp), losses={})) == {pipe.name}


def test_incorrect_spans_are_unlearned(blank, factory, learn, make_examples, entities_of):
    nlp = blank(factory, incorrect_spans_key="wrong")
    assert nlp.get_pipe(factory).incorrect_spans_key == "wrong"
    optimizer = learn(nlp, make_examples(nlp))
    assert entities_of(nlp("京")) == [(0, 1, "GPE")]
    wrong = Example(nlp.make_doc("京"), nlp.make_doc("京"))
    wrong.reference.spans["wrong"] = [Span(wrong.reference, 0, 1, label="GPE")]
    learn(nlp, [wrong], optimizer=optimizer, steps=30)
    assert (0, 1, "GPE") not in entities_of(nlp("京"))
