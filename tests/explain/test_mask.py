"""Test masking of units, and the choice of a mask that the embedders encode as unknown."""

from __future__ import annotations

import math

import numpy as np
import pytest
import spacy
from tiny_transformer import save_tiny_transformer

from spacy_tener.explain import explain
from spacy_tener.explain.explaining import UNKNOWN_CHARACTER, CharacterMask, find_mask
from spacy_tener.features.tokens import TokenBatch

TEXT = "王小明去了上海"


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    """Return a pipeline with a pretrained transformer, and the tokenizer of the transformer."""
    embed = {"@architectures": "spacy_tener.TransformerEmbed.v1"}
    embed["name"] = str(save_tiny_transformer(tmp_path_factory.mktemp("bert")))
    nlp = spacy.blank("zh")
    ner = nlp.add_pipe("tener_ner", config={"model": {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": embed}})
    ner.add_label("PER")
    nlp.initialize()
    return nlp, ner.model.get_ref("tok2vec").shims[0].module.subword_tokenizer


def mask_id(tokenizer):
    """Return the subword id of the mask token."""
    (ids,), _ = tokenizer.encode([tokenizer.mask_token])
    return ids[0]


def test_transformer_uses_its_mask_token(transformer):
    nlp, tokenizer = transformer
    mask = find_mask([nlp.get_pipe("tener_ner").model], one_character=False)
    assert mask.text == "[MASK]"
    assert "A masked unit is encoded as the transformer’s mask token." in mask.notes
    (masked,) = mask.copies(nlp.make_doc(TEXT), [2])
    expected = tokenizer([nlp.make_doc(TEXT)]).ids.copy()
    expected[1 + 2] = mask_id(tokenizer)
    np.testing.assert_array_equal(tokenizer([masked]).ids, expected)


def test_shared_transformer_uses_its_mask_token(tmp_path):
    nlp = spacy.blank("zh")
    spans = {"@span_getters": "spacy-transformers.strided_spans.v1", "window": 20, "stride": 15}
    shared = {"@architectures": "spacy-transformers.TransformerModel.v3", "get_spans": spans}
    shared |= {"name": str(save_tiny_transformer(tmp_path)), "tokenizer_config": {"use_fast": True}}
    nlp.add_pipe("transformer", config={"model": shared})
    pooling = {"@layers": "reduce_mean.v1"}
    listener = {"@architectures": "spacy-transformers.TransformerListener.v1", "pooling": pooling}
    tok2vec = {"@architectures": "spacy_tener.TENER.v1", "width": 16, "heads": 2, "embed": listener}
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}
    nlp.add_pipe("tener_ner", config={"model": model}).add_label("PER")
    nlp.initialize()
    found = explain(nlp, TEXT)
    (text,) = found.texts
    assert found.notes[0] == "A masked unit is encoded as the transformer’s mask token."
    named = [*text.entities, *text.possible]
    assert named
    for entity in named:
        (masked,) = find_mask([nlp.get_pipe("transformer").model], one_character=False).copies(nlp.make_doc(TEXT), [1])
        masked = nlp.get_pipe("transformer")(masked)
        span = masked[entity.start : entity.end]
        span.label_ = entity.label
        (probability,) = next(nlp.get_pipe("tener_ner").decode([masked])).probabilities([span])
        p = entity.probability
        expected = math.log(p / (1 - p)) - math.log(probability / (1 - probability))
        assert entity.attributions[1].drop == pytest.approx(expected, abs=1e-3)


def test_mask_is_one_character_for_character_units(transformer):
    nlp, _ = transformer
    assert find_mask([nlp.get_pipe("tener_ner").model], one_character=True).text == UNKNOWN_CHARACTER


def test_other_tokens_are_unchanged(learned):
    nlp = learned()
    doc = nlp.make_doc("吴重阳在银行")
    for token in doc:
        token.tag_ = f"T{token.i}"
        token.norm_ = "x"
        token.set_morph("Number=Sing")
        token.is_sent_start = token.i in (0, 2)
    mask = find_mask([nlp.get_pipe("tener_ner").model], one_character=False)
    (copy,) = mask.copies(doc, [2])
    assert copy.text == f"吴重{UNKNOWN_CHARACTER}在银行"
    assert [token.tag_ for token in copy] == ["T0", "T1", "", "T3", "T4", "T5"]
    assert [bool(token.morph) for token in copy] == [True, True, False, True, True, True]
    assert [token.norm_ for token in copy] == ["x", "x", UNKNOWN_CHARACTER, "x", "x", "x"]
    assert [token.i for token in copy if token.is_sent_start] == [0, 2]


def test_masked_doc_preserves_named_word_list(learned):
    nlp = learned("MECT")
    words, drops = nlp.get_pipe("tener_ner").lexicon, []
    for name in ("", "named"):
        words.add(["小明", "明去"], name=name)
        doc = nlp.make_doc(TEXT)
        if name:
            doc._.tener_words = name
        (text,) = explain(nlp, doc).texts
        drops.append([unit.drop for entity in text.entities for unit in entity.attributions])
        words.clear(name)
    assert drops[0]
    assert drops[0] == pytest.approx(drops[1])


def test_masked_doc_preserves_user_data_of_doc(learned):
    doc = learned().make_doc("吴重阳")
    doc.user_data |= {"plain": 0, ("._.", "of_doc", None, None): 1, ("._.", "of_token", 1, 2): 2}
    (copy,) = CharacterMask("[MASK]", "").copies(doc, [0])
    assert copy.user_data == {"plain": 0, ("._.", "of_doc", None, None): 1}


def test_mask_has_no_embedding(learned):
    nlp = learned("TENER")
    vocabulary = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").layers[0].attrs["vocabulary"]
    keys = vocabulary.to_input(TokenBatch.of([nlp.make_doc(UNKNOWN_CHARACTER), nlp.make_doc("吴")])).keys["unigram"]
    rows = vocabulary.tables["unigram"].rows(keys)
    assert rows[0] == 0
    assert rows[1] != 0
