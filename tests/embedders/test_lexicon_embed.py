"""Test embeddings of lexicon words, and of words that were added after training.

An added word uses the rows of similar words: words of the lexicon with the same first or last character.
"""

from __future__ import annotations

import numpy as np
import pytest
import spacy
import torch

from spacy_tener.embedders.lexicon_embed import build_lexicon_embed
from spacy_tener.embedders.tables import observe
from spacy_tener.export import trimming
from spacy_tener.features.lexicon import Lexicon
from spacy_tener.features.tokens import TokenBatch
from spacy_tener.features.word_lists import WordList, WordListEntry
from spacy_tener.nn.backend_torch import TorchBackend
from spacy_tener.nn.run import predict
from spacy_tener.nn.shim import torch_shim

nlp = spacy.blank("zh")


def tokens_of(*texts):
    return TokenBatch.of([nlp.make_doc(text) for text in texts])


def embedder(words, **settings):
    """Return an embedder of these words. A change of the list `words` changes its lexicon."""
    return build_lexicon_embed(lambda: Lexicon(words), **{"width": 3, "dropout": 0.0, "word_dropout": 0.0, **settings})


def trained(words, **settings):
    model = embedder(words, **settings)
    model.initialize()
    observe(model, [tokens_of(*words)])
    return model


def row_of(model, word):
    (row,) = predict(model, tokens_of(word)).floats
    return row


def add(model, *words, **tagged):
    entries = {**dict.fromkeys(words, WordListEntry()), **{word: WordListEntry(tag) for word, tag in tagged.items()}}
    model.attrs["vocabulary"].lists.put("", WordList(entries))


def test_added_word_uses_row_of_similar_word():
    model = trained(["上海", "北京"])
    add(model, "北方")
    np.testing.assert_array_equal(row_of(model, "北方"), row_of(model, "北京"))
    assert not np.array_equal(row_of(model, "北方"), row_of(model, "上海"))


def test_second_initialization_updates_similar_words():
    words = ["上海", "北京"]
    model = trained(words)
    add(model, "北方")
    row_of(model, "北方")
    # The number of words with a row is the same, but their order is different.
    words[:] = ["北京", "天津"]
    model.initialize()
    observe(model, [tokens_of(*words)])
    np.testing.assert_array_equal(row_of(model, "北方"), row_of(model, "北京"))


def test_trimming_and_training_update_similar_words(monkeypatch):
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    model = embedder(["上海", "北京", "天津"])
    model.initialize()
    observe(model, [tokens_of("上海", "北京")])
    add(model, "北方")
    row_of(model, "北方")
    trimming.trim_tables(model, trimming.count_rows(model, [tokens_of("北京")]), min_count=1, half=False)
    observe(model, [tokens_of("天津")])
    assert torch_shim(model).sizes["word"] >= 3
    np.testing.assert_array_equal(row_of(model, "北方"), row_of(model, "北京"))


@pytest.mark.parametrize("tag_width", [0, 2])
def test_copy_embeds_added_words_equally(tag_width):
    model = trained(["上海", "北京"], tag_width=tag_width)
    add(model, "北方")
    copy = embedder([], tag_width=tag_width).from_bytes(model.to_bytes())
    np.testing.assert_array_equal(row_of(copy, "北方"), row_of(model, "北方"))


def test_trimming_preserves_rows_of_similar_words(monkeypatch):
    """A row counts as often as added words use it, even if its own word does not occur in the texts."""
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    model = trained(["上海", "北京", "天津", "山东"])
    add(model, "北方", "天下")
    texts = ["北方", "北方", "天下"]
    before = predict(model, tokens_of(*texts)).floats
    trimming.trim_tables(model, trimming.count_rows(model, [tokens_of(*texts)]), min_count=2, half=False)
    assert list(model.attrs["vocabulary"].heights().values()) == [2]
    np.testing.assert_array_equal(predict(model, tokens_of("北方")).floats, before[:1])
    assert not np.array_equal(row_of(model, "天下"), before[2])


def test_trimming_preserves_words_that_replace_hidden_words(monkeypatch):
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    model = trained(["上海", "上海市"], max_words=1)
    model.attrs["vocabulary"].lists.put("", WordList({"上海市": WordListEntry(hidden=True)}))
    before = row_of(model, "上海市")
    trimming.trim_tables(model, trimming.count_rows(model, [tokens_of("上海市")]), min_count=1, half=False)
    np.testing.assert_array_equal(row_of(model, "上海市"), before)


def test_added_word_without_tag_uses_unknown_tag_row():
    model = build_lexicon_embed(lambda: Lexicon(["上海", "北京"], ["ns", "ns"]), width=3, tag_width=2, dropout=0.0)
    model.initialize()
    observe(model, [tokens_of("上海", "北京")])
    add(model, "北方", 武汉="ns")
    from_lexicon, untagged, tagged = (row_of(model, word) for word in ("北京", "北方", "武汉"))
    np.testing.assert_array_equal(tagged[3:], from_lexicon[3:])
    np.testing.assert_array_equal(untagged[:3], from_lexicon[:3])
    assert (untagged[3:] != from_lexicon[3:]).all()


def test_lexicon_word_with_new_tag_uses_row_of_similar_word():
    model = build_lexicon_embed(
        lambda: Lexicon(["上海", "上方", "北京"], ["ns", "n", "ns"]), width=3, tag_width=2, dropout=0.0
    )
    model.initialize()
    observe(model, [tokens_of("上海", "上方", "北京")])
    shanghai, above = row_of(model, "上海"), row_of(model, "上方")
    for tag, expected in (("ns", shanghai), ("n", above)):
        add(model, 上海=tag)
        np.testing.assert_array_equal(row_of(model, "上海"), expected)


def test_added_word_uses_mean_of_similar_words():
    model = trained(["上海", "北京", "天津"])
    add(model, "北方", "上津")
    shanghai, beijing, tianjin = (row_of(model, word) for word in ("上海", "北京", "天津"))
    floats = predict(model, tokens_of("上津，北方，北京，上津")).floats
    mean = (shanghai + tianjin) / 2
    np.testing.assert_allclose(floats, [mean, beijing, beijing, mean], rtol=1e-6)


def test_only_lexicon_words_receive_gradients():
    model = trained(["上海", "北京"])
    add(model, "上方")
    tokens = tokens_of("上方北京")
    backend = TorchBackend.of(model, tokens, training=True)
    words = backend.run(model, tokens)
    gradient = np.array([[5.0, 5.0, 5.0], [1.0, 2.0, 3.0]], dtype="f")
    backend.backward(words.floats, torch.from_numpy(gradient))
    (table,) = torch_shim(model).module.parameters()
    row = model.attrs["vocabulary"].tables["word"].rows(model.attrs["vocabulary"].word_keys(["北京"]))[0]
    expected = np.zeros(table.shape, dtype="f")
    expected[row] = gradient[1]
    np.testing.assert_array_equal(table.grad.to_dense().numpy(), expected)
