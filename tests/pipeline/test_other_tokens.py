"""Tokens unlike those of training, as where a component is sourced into a pipeline with another tokenizer."""

import warnings

import pytest
import spacy
from spacy.tokens import Doc

TEXT = "吴重阳在中国银行工作。王小明去了上海。" * 4
TOLD = r"trained on tokens of 1\.0 characters.*these Docs have tokens of 1\.[4-9].*cfg\['view'\] = 'characters'"


@pytest.fixture
def sourced(learned, jieba_nlp):
    nlp = jieba_nlp()
    nlp.add_pipe("tener_ner", source=learned())
    return nlp


def test_words_given_to_a_model_of_characters_are_told_once(sourced):
    with pytest.warns(UserWarning, match=TOLD) as warned:
        list(sourced.pipe([TEXT, TEXT], batch_size=1))
    assert len(warned) == 1


def test_the_line_that_is_told_finds_the_entities(sourced, learned, char_entities_of, entities_of):
    sourced.get_pipe("tener_ner").cfg["view"] = "characters"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert char_entities_of(sourced(TEXT)) == entities_of(learned()(TEXT))


def test_what_then_reads_characters_is_scored_by_characters(sourced, learned, make_examples):
    sourced.get_pipe("tener_ner").cfg["view"] = "characters"
    reloaded = spacy.blank("zh")
    reloaded.add_pipe("tener_ner", source=sourced)
    examples = [spacy.training.Example(sourced.make_doc(e.text), e.reference) for e in make_examples(learned())]
    for nlp in (sourced, reloaded):
        assert nlp.evaluate(examples)["ents_f"] == 1.0


def test_it_is_told_after_some_tokens_and_again_after_loading(sourced):
    texts = ["吴重阳在中国银行工作。"] * 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(sourced.pipe(texts))
    with pytest.warns(UserWarning, match=TOLD):
        list(sourced.pipe(texts))
    sourced.from_bytes(sourced.to_bytes())
    with pytest.warns(UserWarning, match=TOLD):
        list(sourced.pipe(texts * 2))


def test_characters_given_to_a_model_of_words_are_told(blank, jieba_nlp, learn, tiny_model):
    nlp = jieba_nlp()
    nlp.add_pipe("tener_ner", config={"model": tiny_model})
    docs = [nlp.make_doc("吴重阳在中国银行工作。")]
    nlp.initialize(lambda: [spacy.training.Example(doc, doc.copy()) for doc in docs])
    characters = spacy.blank("zh")
    characters.add_pipe("tener_ner", source=nlp)
    with pytest.warns(UserWarning, match="Use the tokenizer that it was trained with"):
        characters(TEXT)


def test_nothing_is_told_of_tokens_like_those_of_training(learned):
    nlp = learned()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp(TEXT)
        nlp(Doc(nlp.vocab, words=["Angela", "Merkel"]))
        nlp("\n".join(["姓名：" + " " * 20 + "王小明"] * 20))


def test_another_language_is_not_told_where_its_tokenizer_makes_characters_of_some_scripts(tiny_model):
    tokenizer = {"@tokenizers": "spacy_tener.MultilingualTokenizer.v1"}
    nlp = spacy.blank("xx", config={"nlp": {"tokenizer": tokenizer}})
    nlp.add_pipe("tener_ner", config={"model": tiny_model})
    docs = [nlp.make_doc("Angela Merkel met Tim Cook.")]
    nlp.initialize(lambda: [spacy.training.Example(doc, doc.copy()) for doc in docs])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(nlp.pipe([TEXT]))
