"""Warnings about tokens that differ from the training tokens, for example after sourcing into a pipeline with
another tokenizer."""

import warnings

import pytest
import spacy
from spacy.tokens import Doc

TEXT = "吴重阳在中国银行工作。王小明去了上海。" * 4
WARNING = r"trained on tokens with 1\.0 characters.*these Docs have 1\.[4-9].*cfg\['view'\] = 'characters'"


@pytest.fixture
def sourced(learned, jieba_nlp):
    nlp = jieba_nlp()
    nlp.add_pipe("tener_ner", source=learned())
    return nlp


def test_word_tokens_in_character_model_warn_once(sourced):
    with pytest.warns(UserWarning, match=WARNING) as caught_warnings:
        list(sourced.pipe([TEXT, TEXT], batch_size=1))
    assert len(caught_warnings) == 1


def test_suggested_character_view_finds_entities(sourced, learned, char_entities_of, entities_of):
    sourced.get_pipe("tener_ner").cfg["view"] = "characters"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert char_entities_of(sourced(TEXT)) == entities_of(learned()(TEXT))


def test_character_view_is_scored_by_characters(sourced, learned, make_examples):
    sourced.get_pipe("tener_ner").cfg["view"] = "characters"
    reloaded = spacy.blank("zh")
    reloaded.add_pipe("tener_ner", source=sourced)
    examples = [spacy.training.Example(sourced.make_doc(e.text), e.reference) for e in make_examples(learned())]
    for nlp in (sourced, reloaded):
        assert nlp.evaluate(examples)["ents_f"] == 1.0


def test_warning_needs_several_tokens_and_repeats_after_loading(sourced):
    texts = ["吴重阳在中国银行工作。"] * 6
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(sourced.pipe(texts))
    with pytest.warns(UserWarning, match=WARNING):
        list(sourced.pipe(texts))
    sourced.from_bytes(sourced.to_bytes())
    with pytest.warns(UserWarning, match=WARNING):
        list(sourced.pipe(texts * 2))


def test_character_tokens_in_word_model_warn(blank, jieba_nlp, learn, tiny_model):
    nlp = jieba_nlp()
    nlp.add_pipe("tener_ner", config={"model": tiny_model})
    docs = [nlp.make_doc("吴重阳在中国银行工作。")]
    nlp.initialize(lambda: [spacy.training.Example(doc, doc.copy()) for doc in docs])
    characters = spacy.blank("zh")
    characters.add_pipe("tener_ner", source=nlp)
    with pytest.warns(UserWarning, match="Use the tokenizer that the component was trained with"):
        characters(TEXT)


def test_similar_tokens_do_not_warn(learned):
    nlp = learned()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp(TEXT)
        nlp(Doc(nlp.vocab, words=["Angela", "Merkel"]))
        nlp("\n".join(["姓名：" + " " * 20 + "王小明"] * 20))


def test_multilingual_tokenizer_does_not_warn_about_other_scripts(tiny_hash_embed):
    tokenizer = {"@tokenizers": "spacy_tener.MultilingualTokenizer.v1"}
    nlp = spacy.blank("xx", config={"nlp": {"tokenizer": tokenizer}})
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tiny_hash_embed}
    nlp.add_pipe("tener_ner", config={"model": model})
    docs = [nlp.make_doc("Angela Merkel met Tim Cook.")]
    nlp.initialize(lambda: [spacy.training.Example(doc, doc.copy()) for doc in docs])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(nlp.pipe([TEXT]))


GERMAN = "Angela Merkel besuchte gestern Nachmittag die Technische Universität München."


def initialize(text, lang, **config):
    """Return a pipeline that is initialized on a text without entities."""
    nlp = spacy.blank(lang)
    nlp.add_pipe("tener_ner", config=config)
    doc = nlp.make_doc(text)
    nlp.initialize(lambda: [spacy.training.Example(doc, doc.copy())])
    return nlp


def test_words_of_alphabet_with_character_embedder_warn_at_initialize():
    characters = {"@architectures": "spacy_tener.TENER.v1", "embed": {"@architectures": "spacy_tener.CharEmbed.v1"}}
    with pytest.warns(UserWarning, match=r"meant for Chinese .* spacy_tener\.WordCharEmbed\.v1 .*config --lang de"):
        initialize(GERMAN, "de", model={"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": characters})


@pytest.mark.parametrize(
    ("lang", "embedder"), [("zh", None), ("de", "WordCharEmbed"), ("en", "WordCharEmbed"), ("xx", "WordCharEmbed")]
)
def test_default_embedder_fits_language(lang, embedder, tmp_path):
    nlp = spacy.blank(lang)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nlp.add_pipe("tener_ner")
    embed = nlp.config["components"]["tener_ner"]["model"]["tok2vec"]["embed"]
    assert (embed and embed["@architectures"]) == (embedder and f"spacy_tener.{embedder}.v1")
    assert nlp.config["components"]["tener_ner"]["factory"] == "tener_ner"
    nlp.to_disk(tmp_path)
    assert spacy.load(tmp_path).config == nlp.config


def test_embedder_that_fits_tokens_does_not_warn_at_initialize(tiny_hash_embed):
    words = {"@architectures": "spacy_tener.TENER.v1", "embed": {"@architectures": "spacy_tener.WordCharEmbed.v1"}}
    hashed = {"@architectures": "spacy_tener.TENER.v1", "embed": tiny_hash_embed}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for tok2vec in (words, hashed):
            initialize(GERMAN, "de", model={"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec})
        initialize(GERMAN, "de", view="characters")
        initialize("昨天下午参观了慕尼黑工业大学 Technische Universität", "zh")
