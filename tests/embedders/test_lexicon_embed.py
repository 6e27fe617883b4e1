"""The embedder of a lexicon's words: rows, listed words that are read like them, and what a second training keeps."""

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
    """A trained embedder of these words, whose source can be changed by changing the list."""
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


def test_a_listed_word_has_the_row_of_the_word_that_begins_or_ends_alike():
    model = trained(["上海", "北京"])
    add(model, "北方")
    np.testing.assert_array_equal(row_of(model, "北方"), row_of(model, "北京"))
    assert not np.array_equal(row_of(model, "北方"), row_of(model, "上海"))


def test_initializing_again_forgets_which_words_were_known():
    words = ["上海", "北京"]
    model = trained(words)
    add(model, "北方")
    row_of(model, "北方")
    # As many words with a row as before, in another order.
    words[:] = ["北京", "天津"]
    model.initialize()
    observe(model, [tokens_of(*words)])
    np.testing.assert_array_equal(row_of(model, "北方"), row_of(model, "北京"))


def test_trimming_and_training_on_forget_which_words_were_known(monkeypatch):
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
def test_a_copy_reads_listed_words_alike(tag_width):
    model = trained(["上海", "北京"], tag_width=tag_width)
    add(model, "北方")
    copy = embedder([], tag_width=tag_width).from_bytes(model.to_bytes())
    np.testing.assert_array_equal(row_of(copy, "北方"), row_of(model, "北方"))


def test_trimming_keeps_the_rows_by_which_listed_words_of_the_texts_are_read(monkeypatch):
    """As often as these occur, though the texts have none of the words that the rows belong to."""
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    model = trained(["上海", "北京", "天津", "山东"])
    add(model, "北方", "天下")
    texts = ["北方", "北方", "天下"]
    before = predict(model, tokens_of(*texts)).floats
    trimming.trim_tables(model, trimming.count_rows(model, [tokens_of(*texts)]), min_count=2, half=False)
    assert list(model.attrs["vocabulary"].heights().values()) == [2]
    np.testing.assert_array_equal(predict(model, tokens_of("北方")).floats, before[:1])
    assert not np.array_equal(row_of(model, "天下"), before[2])


def test_trimming_keeps_the_words_that_hidden_ones_make_room_for(monkeypatch):
    monkeypatch.setattr(trimming, "MIN_TABLE_ROWS", 0)
    model = trained(["上海", "上海市"], max_words=1)
    model.attrs["vocabulary"].lists.put("", WordList({"上海市": WordListEntry(hidden=True)}))
    before = row_of(model, "上海市")
    trimming.trim_tables(model, trimming.count_rows(model, [tokens_of("上海市")]), min_count=1, half=False)
    np.testing.assert_array_equal(row_of(model, "上海市"), before)


def test_a_listed_word_without_a_tag_has_the_row_of_unknown_tags():
    model = build_lexicon_embed(lambda: Lexicon(["上海", "北京"], ["ns", "ns"]), width=3, tag_width=2, dropout=0.0)
    model.initialize()
    observe(model, [tokens_of("上海", "北京")])
    add(model, "北方", 武汉="ns")
    from_lexicon, untagged, tagged = (row_of(model, word) for word in ("北京", "北方", "武汉"))
    np.testing.assert_array_equal(tagged[3:], from_lexicon[3:])
    np.testing.assert_array_equal(untagged[:3], from_lexicon[:3])
    assert (untagged[3:] != from_lexicon[3:]).all()


def test_a_listed_word_of_the_lexicon_keeps_its_row_unless_the_list_gives_it_another_tag():
    model = build_lexicon_embed(
        lambda: Lexicon(["上海", "上方", "北京"], ["ns", "n", "ns"]), width=3, tag_width=2, dropout=0.0
    )
    model.initialize()
    observe(model, [tokens_of("上海", "上方", "北京")])
    shanghai, above = row_of(model, "上海"), row_of(model, "上方")
    for tag, expected in (("ns", shanghai), ("n", above)):
        add(model, 上海=tag)
        np.testing.assert_array_equal(row_of(model, "上海"), expected)


def test_each_listed_word_of_a_text_has_the_mean_of_words_like_it():
    model = trained(["上海", "北京", "天津"])
    add(model, "北方", "上津")
    shanghai, beijing, tianjin = (row_of(model, word) for word in ("上海", "北京", "天津"))
    floats = predict(model, tokens_of("上津，北方，北京，上津")).floats
    mean = (shanghai + tianjin) / 2
    np.testing.assert_allclose(floats, [mean, beijing, beijing, mean], rtol=1e-6)


def test_the_lexicon_s_words_learn_beside_listed_ones_and_these_teach_nothing():
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
