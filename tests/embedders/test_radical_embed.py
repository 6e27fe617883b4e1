"""Test radical embeddings: encoding of tokens from the radicals of their characters, and serialization."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from model_checks import learn
from spacy.lang.zh import Chinese
from spacy.tokens import Doc
from spacy.vocab import Vocab

from spacy_tener.embedders import spelling_numpy as characters
from spacy_tener.embedders.char_embed import build_join_embed
from spacy_tener.embedders.radical_embed import RADICAL, Structures, build_radical_embed
from spacy_tener.features.tokens import TokenBatch

PARTS = {
    "江": ("氵", "工"),
    "河": ("氵", "可"),
    "湖": ("氵", "胡"),
    "胡": ("古", "月"),
    "古": ("十", "口"),
    "可": ("丁", "口"),
    "钢": ("钅", "冈"),
    "银": ("钅", "艮"),
    "𢰌": ("扌", "罒", "心"),
}


def few_structures():
    return Structures(PARTS, "made up")


def first_radicals():
    return Structures({char: parts[:1] for char, parts in PARTS.items()}, "made up")


def embedder(**settings):
    defaults = {"dropout": 0.0, "radical_dropout": 0.0, "source": few_structures}
    model = build_radical_embed(**{**defaults, "width": 8, "radical_width": 6, "filters": 5, **settings})
    model.initialize()
    return model


@pytest.fixture(scope="module")
def doc_of():
    return Chinese().make_doc


def doc_of_words(*words):
    return Doc(Vocab(), words=list(words))


def seen_radicals(model):
    return "".join(map(chr, model.attrs["vocabulary"].tables[RADICAL].keys.tolist()))


# --- encoding --------------------------------------------------------------------------------------------------------


def test_digits_option_maps_digits_to_one_row(doc_of):
    text = doc_of_words("1", "2", "７")
    assert seen_radicals(learn(embedder(), [text])) == "0"
    assert sorted(seen_radicals(learn(embedder(digits=False), [text]))) == sorted("12７")


def test_simplify_option_uses_radicals_of_simplified_form():
    simplified, traditional = doc_of_words("银", "钢1"), doc_of_words("銀", "鋼１")
    model = learn(embedder(simplify=True), [simplified])
    np.testing.assert_array_equal(*model.predict([simplified, traditional]))
    assert set(seen_radicals(learn(embedder(), [traditional]))) == set("銀鋼0")


def test_unseen_character_is_encoded_from_seen_radicals(doc_of):
    # This is the purpose of radical embeddings.
    model = learn(embedder(source=first_radicals), [doc_of("江河")])
    lake, river, silver = model.predict([doc_of_words("湖", "江", "银")])[0]
    np.testing.assert_array_equal(lake, river)
    assert not np.allclose(silver, river)


def test_token_is_encoded_from_radicals_of_all_characters():
    word = doc_of_words("江河a")
    model = learn(embedder(), [word])
    assert sorted(seen_radicals(model)) == sorted("氵工可a")
    spelled = model.attrs["vocabulary"].spell(TokenBatch.of([word]))
    assert "".join(map(chr, spelled.keys.tolist())) == "氵工氵可a"
    assert spelled.lengths.tolist() == [5]


def test_radicals_of_long_token_are_truncated():
    model = embedder()
    long_token = doc_of_words("江" * 100_000)
    assert model.attrs["vocabulary"].spell(TokenBatch.of([long_token])).keys.size <= 200
    assert model.predict([long_token])[0].shape == (1, 8)


def test_distinct_characters_are_encoded_once(doc_of, monkeypatch):
    model = learn(embedder(), [doc_of("江河")])
    lengths, pool = [], characters.max_pool_relu

    def counted(rows, of_words):
        lengths.append(len(of_words))
        return pool(rows, of_words)

    monkeypatch.setattr(characters, "max_pool_relu", counted)
    docs = [doc_of("江河江河江江"), doc_of("河"), doc_of("江")]
    rows = np.concatenate(model.predict(docs))
    assert lengths == [2]
    np.testing.assert_array_equal(rows[[0, 2, 4, 5, 7]], np.tile(rows[0], (5, 1)))


# --- saving ----------------------------------------------------------------------------------------------------------


def test_loaded_embedder_does_not_need_radical_source(doc_of, monkeypatch):
    model = learn(embedder(source=None), [doc_of("南京市长江大桥x1😀")])

    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    loaded = build_radical_embed(width=8, radical_width=6, filters=5).from_bytes(model.to_bytes())
    assert loaded.attrs["vocabulary"].structures["银"] == "钅艮"
    assert "CC BY" in loaded.attrs["vocabulary"].structures.credit
    learn(loaded, [doc_of("银河")])
    assert set(seen_radicals(loaded)) == set(seen_radicals(model)) | set("钅艮氵可")


# --- with other embedders ------------------------------------------------------------------------------------------


def test_join_embed_defaults_to_characters_and_radicals():
    assert [part.name for part in build_join_embed().layers] == ["char_embed", "radical_embed"]
