"""Pretraining: whole words are masked, the loss is the cross-entropy of their tokens, and it falls."""

import numpy as np
import pytest
import spacy
from spacy.ml.models import build_Tok2Vec_model
from spacy.training.pretrain import make_update
from spacy.util import registry
from thinc.api import Adam, Config, get_current_ops

from spacy_tener.models.pretraining import MASK, build_pretrain_words, choose_tokens, mask_tokens, masked_loss, words_of

TEXTS = ["吴重阳在中国银行工作", "他去了上海", "中国银行在北京"]
MODEL = """
[model]
@architectures = "spacy_tener.TENER.v1"
width = 16
heads = 2
"""


@pytest.fixture
def nlp():
    return spacy.blank("zh")


@pytest.fixture
def jieba():
    return registry.misc.get("spacy_tener.JiebaSegmenter.v1")()


def test_the_characters_of_a_word_are_masked_together(nlp, jieba):
    docs = [nlp(text) for text in TEXTS]
    words = words_of(jieba)(docs)
    text = "".join(TEXTS)
    first = text.index("中国银行")
    assert len(set(words[first : first + 4])) == 1
    assert words[first - 1] != words[first] != words[first + 4]
    for _ in range(20):
        chosen = set(choose_tokens(words, 0.3).tolist())
        assert chosen
        assert all(set(np.flatnonzero(words == words[token]).tolist()) <= chosen for token in chosen)
    assert words_of(None)(docs).tolist() == list(range(len(text)))
    assert len(choose_tokens(np.arange(3), 1e-9)) == 1


def test_masked_tokens_are_hidden_and_the_others_stay(nlp):
    docs = [nlp(text * 40) for text in TEXTS]
    chosen = np.arange(0, sum(map(len, docs)), 2)
    changed = [token.text for doc in mask_tokens(docs, chosen) for token in doc]
    text = [token.text for doc in docs for token in doc]
    assert changed[1::2] == text[1::2]
    hidden = changed[::2].count(MASK) / len(chosen)
    assert 0.7 < hidden < 0.9
    assert [doc.text for doc in docs] == [text * 40 for text in TEXTS]


def test_a_batch_of_empty_texts_is_legal_and_teaches_nothing(nlp):
    tok2vec = registry.resolve(Config().from_str(MODEL))["model"]
    model = build_pretrain_words()(nlp.vocab, tok2vec)
    model.initialize(X=[nlp(TEXTS[0])])
    before = model.to_bytes()
    assert make_update(model, [nlp(""), nlp("")], Adam(0.01), model.attrs["loss"]) == 0.0
    assert model.to_bytes() == before


def test_the_gradient_is_that_of_the_loss(nlp):
    ops, rng = get_current_ops(), np.random.default_rng(0)
    docs, chosen = [nlp(TEXTS[0])], np.array([0, 3])
    scores = rng.normal(size=(2, 5)).astype("f")

    def value(scores):
        guesses = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        return masked_loss(ops, docs, guesses, chosen, 5)

    _, gradient = value(scores)
    for place in np.ndindex(2, 5):
        step = np.zeros_like(scores)
        step[place] = 1e-2
        slope = (value(scores + step)[0] - value(scores - step)[0]) / 2e-2
        assert gradient[place] == pytest.approx(slope, abs=1e-3)


@pytest.mark.parametrize("own", [True, False], ids=["TENER", "spaCy's"])
def test_an_encoder_learns_to_guess(nlp, jieba, own):
    if own:
        tok2vec = registry.resolve(Config().from_str(MODEL))["model"]
    else:
        embed = registry.architectures.get("spacy.MultiHashEmbed.v2")(16, ["ORTH"], [100], False)
        encode = registry.architectures.get("spacy.MaxoutWindowEncoder.v2")(16, 1, 2, 1)
        tok2vec = build_Tok2Vec_model(embed, encode)
    docs = [nlp(text) for text in TEXTS]
    tok2vec.initialize(X=docs)
    model = build_pretrain_words(jieba, mask=0.3, classes=64, hidden_size=16)(nlp.vocab, tok2vec)
    model.initialize(X=docs)
    optimizer = Adam(0.01)
    losses = [make_update(model, docs, optimizer, model.attrs["loss"]) for _ in range(60)]
    assert np.mean(losses[-10:]) < 0.6 * np.mean(losses[:5])
    assert model.get_ref("tok2vec").to_bytes()


@pytest.mark.parametrize("settings", [{"mask": 0.0}, {"mask": 1.0}, {"classes": 1}, {"hidden_size": 0}])
def test_what_cannot_be_guessed_is_refused(settings):
    with pytest.raises(ValueError, match=r"spacy_tener\.PretrainWords\.v1 needs"):
        build_pretrain_words(**settings)
