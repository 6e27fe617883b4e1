"""Character-level processing (`view = "characters"`): training, alignment to tokens, and exact entities."""

import pickle

import pytest
import spacy
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example

from spacy_tener.pipeline.entities import RECORD_KEY

TEXT = "吴重阳在中国银行工作。"
FOUND = [(0, 3, "PER"), (4, 8, "ORG")]


def segmented(vocab, words):
    return Doc(vocab, words=words, spaces=[False] * len(words))


@pytest.fixture
def character_pipeline(learned):
    """Return a function that makes a pipeline with `view = "characters"` that has overfitted the sentences."""

    def make(**config):
        nlp = learned(view="characters", **config)
        return nlp, nlp.get_pipe("tener_ner")

    return make


@pytest.fixture
def character_examples(learned):
    """Return a function that makes examples as `spacy tener convert` does: reference tokens are characters."""

    def make(nlp, data):
        characters = spacy.blank("zh")
        return [
            Example(nlp.make_doc(text), Example.from_dict(characters.make_doc(text), {"entities": entities}).reference)
            for text, entities in data
        ]

    return make


SEGMENTATIONS = [
    pytest.param(list(TEXT), FOUND, FOUND, FOUND, id="characters"),
    pytest.param(["吴重阳", "在", "中国", "银行", "工作", "。"], FOUND, FOUND, FOUND, id="edges agree"),
    pytest.param(
        ["吴", "重阳在", "中国", "银行工作", "。"],
        [(0, 4, "PER"), (4, 10, "ORG")],
        [(0, 1, "PER"), (4, 6, "ORG")],
        [],
        id="edges inside tokens",
    ),
    pytest.param([TEXT], [(0, 11, "ORG")], [], [], id="one token"),
    pytest.param(["吴重阳在中国银行", "工作。"], [(0, 8, "ORG")], [], [], id="two entities in a token"),
]


@pytest.mark.parametrize(("words", "expand", "contract", "strict"), SEGMENTATIONS)
def test_alignment_mode_maps_entities_to_tokens(
    character_pipeline, entities_of, char_entities_of, words, expand, contract, strict
):
    for mode, expected in (("expand", expand), ("contract", contract), ("strict", strict)):
        nlp, pipe = character_pipeline(alignment_mode=mode)
        doc = pipe(segmented(nlp.vocab, words))
        assert entities_of(doc) == expected
        assert char_entities_of(doc) == FOUND


def test_jieba_words_are_trained_and_predicted_by_characters(
    jieba_nlp, blank, learn, character_examples, sentences, entities_of, char_entities_of
):
    nlp = jieba_nlp()
    nlp.add_pipe("tener_ner", config={"model": blank().get_pipe_config("tener_ner")["model"], "view": "characters"})
    learn(nlp, character_examples(nlp, sentences))
    for text, entities in sentences:
        doc = nlp(text)
        assert char_entities_of(doc) == entities
        assert [len(ent.text) for ent in doc.ents] == [end - start for start, end, _ in entities]
    assert entities_of(nlp(TEXT)) == FOUND
    assert nlp.evaluate(character_examples(nlp, sentences))["ents_f"] == 1.0


def test_misaligned_entity_is_learned_unlike_in_spacy_ner(
    jieba_nlp, blank, tiny_ner, tiny_model, learn, character_examples, entities_of, char_entities_of
):
    # jieba segments 中国银行 as a single word, so that the entity 中国 is not aligned with tokens.
    data = [("中国银行", [(0, 2, "GPE")])]
    ner = jieba_nlp()
    ner.add_pipe("ner", config={"model": tiny_ner})
    assert [token.text for token in ner.make_doc("中国银行")] == ["中国银行"]
    examples = character_examples(ner, data)
    assert not any(examples[0].get_aligned_ner())
    learn(ner, examples)
    assert (0, 2, "GPE") not in entities_of(ner("中国银行"))
    nlp = jieba_nlp()
    nlp.add_pipe("tener_ner", config={"model": tiny_model, "view": "characters"})
    learn(nlp, character_examples(nlp, data))
    doc = nlp("中国银行")
    assert char_entities_of(doc) == [(0, 2, "GPE")]
    assert entities_of(doc) == [(0, 4, "GPE")]


UNUSUAL_TEXTS = [
    pytest.param("吴重阳😀在𠮷中国银行", id="outside the basic plane"),
    pytest.param("吴重阳\r\n在\t中国银行\r\n", id="CRLF"),
    pytest.param("吴\u200b重\ufeff阳\u200d在中国\u2060银行", id="zero width"),
    pytest.param("\u3000吴重阳\u3000\u00a0中国银行\u2028", id="wide spaces"),
    pytest.param("e\u0301吴重阳 👨\u200d👩\u200d👧 中国银行", id="combining characters"),
    pytest.param("\x00\x1f吴重阳", id="control characters"),
    pytest.param("   \n \n  ", id="white space"),
]


@pytest.mark.parametrize("text", UNUSUAL_TEXTS)
def test_training_supports_unusual_characters(tiny_model, text, char_entities_of):
    nlp = spacy.blank("en")
    nlp.add_pipe("tener_ner", config={"model": tiny_model, "view": "characters"})
    reference = segmented(nlp.vocab, list(text))
    reference.ents = [Span(reference, 0, len(text), "ALL")]
    examples = [Example(nlp.make_doc(text), reference)]
    optimizer = nlp.initialize(lambda: examples)
    optimizer.learn_rate = 0.01
    for _ in range(20):
        losses = nlp.update(examples, sgd=optimizer, losses={})
    assert losses["tener_ner"] >= 0.0
    stripped = text.strip()
    first = text.find(stripped)
    expected = [(first, first + len(stripped), "ALL")] if stripped else []
    assert char_entities_of(nlp.get_pipe("tener_ner")(nlp.make_doc(text))) == expected


def test_exact_entities_survive_doc_serialization(character_pipeline, char_entities_of):
    nlp, pipe = character_pipeline()
    doc = pipe(segmented(nlp.vocab, ["吴", "重阳在", "中国", "银行工作", "。"]))
    assert [span.text for span in doc.spans["tener_ner_chars"]] == ["吴重阳在", "中国银行工作"]
    [stored] = DocBin(docs=[doc]).get_docs(nlp.vocab)
    for copy in (stored, Doc(nlp.vocab).from_bytes(doc.to_bytes()), doc.copy(), pickle.loads(pickle.dumps(doc))):
        assert char_entities_of(copy) == FOUND
        assert char_entities_of(pipe(copy)) == FOUND


def test_exact_entities_are_updated_by_second_prediction(character_pipeline, char_entities_of):
    nlp, pipe = character_pipeline()
    doc = pipe(segmented(nlp.vocab, ["吴", "重阳在", "中国", "银行工作", "。"]))
    doc.set_ents([Span(doc, 2, 3, "GPE", kb_id="Q148", span_id="7")], default="missing")
    pipe(doc)
    assert ("中国", "GPE", "Q148", "7") in [(ent.text, ent.label_, ent.kb_id_, ent.id_) for ent in doc.ents]
    assert (4, 6, "GPE") in char_entities_of(doc)
    assert (4, 8, "ORG") not in char_entities_of(doc)


@pytest.mark.parametrize("words", [list(TEXT), ["吴重阳", "在中国银行工作。"], []])
def test_chars_key_sets_or_disables_exact_entities(character_pipeline, char_entities_of, words):
    nlp, pipe = character_pipeline(chars_key="exact")
    doc = pipe(segmented(nlp.vocab, words))
    assert char_entities_of(doc, "exact") == (FOUND if words else [])
    assert "tener_ner_chars" not in doc.spans
    nlp, pipe = character_pipeline(chars_key=None)
    assert not set(pipe(segmented(nlp.vocab, words)).spans) - {RECORD_KEY}
