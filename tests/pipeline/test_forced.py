"""Lists that win: words that are entities wherever they occur, and words that never are."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
import spacy
from small_systems import SYSTEMS, UNSEEN, trained
from spacy.language import Language
from spacy.tokens import Doc

from spacy_tener.annotate import AnnotateSettings, Annotator
from spacy_tener.errors import RemedyError
from spacy_tener.explain import explain
from spacy_tener.pipeline.finding import entity_labels
from spacy_tener.workbench.suggestions.suggest import Suggestion, make_tasks

COMPANY, PRODUCT = "云海一号", "PRODUCT"
TEXT = f"吴小明在上海银行买了{COMPANY}"


def load(kind: str = "tener") -> Language:
    return spacy.load(trained(kind))


def words_of(nlp: Language) -> Any:
    return nlp.get_pipe(nlp.pipe_names[-1]).lexicon  # type: ignore[attr-defined]


def entities(doc: Doc) -> list[tuple[str, str]]:
    return [(ent.text, ent.label_) for ent in doc.ents]


@pytest.fixture
def nlp() -> Language:
    return load()


@pytest.mark.parametrize("kind", [*SYSTEMS, "characters"])
@pytest.mark.parametrize("label", ["GPE", PRODUCT])
def test_a_forced_word_is_an_entity_whole_with_its_label_in_every_system(kind: str, label: str) -> None:
    nlp = load(kind)
    before = entities(nlp(UNSEEN))
    words_of(nlp).add({COMPANY: label, "行买": label}, force=True)
    assert words_of(nlp).forced() == {COMPANY: label, "行买": label}
    doc = nlp(TEXT)
    assert {(COMPANY, label), ("行买", label)} <= {*entities(doc)}
    assert entities(nlp(UNSEEN)) == before
    (decoding,) = nlp.get_pipe("tener_ner").decode([nlp.make_doc(TEXT)])  # type: ignore[attr-defined]
    probabilities = {entity.offsets: entity.probability for entity in decoding.entities}
    assert [probabilities[7, 9, label], probabilities[10, 14, label]] == pytest.approx([1.0, 1.0])
    assert [entity.offsets for entity in decoding.forced] == [(7, 9, label), (10, 14, label)]
    assert all({(10, 14, label)} <= {e.offsets for e in reading.entities} for reading in decoding.k_best(3))
    assert decoding.probabilities([(10, 14, label), (10, 13, label)]) == pytest.approx([1.0, 0.0])
    marginals = decoding.marginals(0.01)
    assert {(7, 9, label), (10, 14, label)} <= {entity.offsets for entity in marginals.entities}
    assert marginals.outside[[7, 8, 10, 11, 12, 13]].max() == pytest.approx(0.0)
    assert len(decoding.rivals()) == len(decoding.entities)


@pytest.mark.parametrize("label", ["ORG", PRODUCT])
def test_the_rest_is_decided_as_beside_an_entity_that_the_doc_has(nlp: Language, label: str) -> None:
    doc = nlp.make_doc(TEXT)
    doc.set_ents([doc.char_span(7, 9, label=label)], default="missing")
    expected = entities(nlp(doc))
    words_of(nlp).add({"行买": label}, force=True)
    assert entities(nlp(TEXT)) == expected
    assert ("行买", label) in expected


def test_the_longest_word_wins_then_the_order_of_the_list(nlp: Language) -> None:
    words = words_of(nlp)
    words.add({"乙丙": "A", "甲乙": "B", "丙丁戊": "C"}, force=True)
    assert entities(nlp("甲乙丙丁")) == [("乙丙", "A")]
    assert entities(nlp("甲乙丙丁戊")) == [("甲乙", "B"), ("丙丁戊", "C")]
    words.add({"甲乙": "D"}, name="last", force=True)
    doc = nlp.make_doc("甲乙丙丁")
    doc._.tener_words = "last"
    assert entities(nlp(doc)) == [("甲乙", "D")]


@pytest.mark.parametrize(
    ("word", "text", "expected"),
    [
        ("AI", "MAIL AI AIR", [5]),
        ("5G", "15G和5G与5G2", [4]),
        ("50", "3.50元50个1,500个50", [5, 14]),
        # Marks that are characters of their own belong to the letter before them.
        ("cafe", "cafe\u0301和cafe和e\u0301cafe", [6]),
        ("कम", "कमी कम", [4]),
        ("王明", "王明\u0301", [0]),
        ("né", "René né", [5]),
        ("Мос", "Москва Мос", [7]),
        ("New York", "New York和Newer New Yorks", [0]),
        ("云海AI", "云海AI很好云海AIR", [0]),
        ("東京", "東京都", [0]),
    ],
)
def test_a_word_does_not_cut_words_of_letters_and_numbers(
    nlp: Language, word: str, text: str, expected: list[int]
) -> None:
    words_of(nlp).add([word], PRODUCT, force=True)
    assert [ent.start_char for ent in nlp(text).ents if ent.label_ == PRODUCT] == expected


def test_the_entities_of_a_doc_stay_and_one_warning_says_so(nlp: Language) -> None:
    words_of(nlp).add({"上海银行": "ORG", COMPANY: PRODUCT}, force=True)
    same = nlp.make_doc(TEXT)
    same.ents = [same.char_span(4, 8, label="ORG")]  # type: ignore[list-item]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ("上海银行", "ORG") in entities(nlp(same))
    doc, again = nlp.make_doc(TEXT), nlp.make_doc(TEXT)
    for text in (doc, again):
        text.set_ents([text.char_span(4, 6, label="GPE")], default="missing")
    with pytest.warns(UserWarning, match=r"overlaps with an entity that the Doc has: the Doc's entity stays") as caught:
        found = [entities(doc) for doc in nlp.pipe([doc, again])]
    assert len(caught) == 1
    assert all({("上海", "GPE"), (COMPANY, PRODUCT)} <= {*ents} and ("上海银行", "ORG") not in ents for ents in found)


@pytest.mark.parametrize("label", ["", "GPE"])
@pytest.mark.parametrize("kind", ["tener", "characters"])
def test_a_blocked_word_is_no_entity_but_longer_names_with_it_are(kind: str, label: str) -> None:
    nlp = load(kind)
    texts = ["王小明去了上海", "上海银行的王经理说南京很大，北京也很大，今天天气很好", "北京大学在北京"]
    before = [entities(doc) for doc in nlp.pipe(texts)]
    words_of(nlp).block(["上海", "北京"], label)
    assert words_of(nlp).blocked() == {"上海": label, "北京": label}
    blocked = [[entity for entity in found if entity[0] not in ("上海", "北京")] for found in before]
    found = [entities(doc) for doc in nlp.pipe(texts)]
    if label:
        assert not any(entity in (("上海", "GPE"), ("北京", "GPE")) for ents in found for entity in ents)
    else:
        assert found == blocked
    (decoding,) = nlp.get_pipe("tener_ner").decode([nlp.make_doc(texts[0])])  # type: ignore[attr-defined]
    assert decoding.probabilities([(5, 7, "GPE")]) == [0.0]
    words_of(nlp).block({"上海": "ORG"})
    words_of(nlp).remove(["北京"], force=True)
    assert [entities(doc) for doc in nlp.pipe(texts)] == before


def test_blocking_a_label_that_the_model_lacks_warns() -> None:
    with pytest.warns(UserWarning, match="has no label ORG.NAM, so that .* It has: GPE, "):
        words_of(load()).block({"上海": "ORG.NAM"})


@pytest.mark.parametrize("kind", ["tener", "characters"])
def test_a_blocked_word_is_in_no_result_where_the_model_would_not_find_it_either(kind: str) -> None:
    nlp = load(kind)
    words_of(nlp).block({"上海": "", "小明": "PER"})
    texts = ["王小明去了上海", "今天上海小明很好"]
    for decoding in nlp.get_pipe("tener_ner").decode([nlp.make_doc(text) for text in texts]):  # type: ignore[attr-defined]
        text, readings = decoding.view.doc.text, decoding.k_best(50)
        results = [decoding.entities, decoding.marginals(1e-6).entities, *(reading.entities for reading in readings)]
        found = [(text[entity.start : entity.end], entity.label) for entities in results for entity in entities]
        assert ("小明", "GPE") in found
        assert not any(word == "上海" or (word, label) == ("小明", "PER") for word, label in found)
        start = text.index("上海")
        assert decoding.probabilities([(start, start + 2, label) for label in ("GPE", "ORG")]) == [0.0, 0.0]


def test_a_blocked_word_of_one_token_is_no_entity_either() -> None:
    nlp = load()
    doc = Doc(nlp.vocab, words=["京", "上海"], spaces=[False, False])
    words_of(nlp).add({"上海": "GPE"}, force=True)
    assert entities(nlp(doc)) == [("京", "GPE"), ("上海", "GPE")]
    words_of(nlp).block({"上海": ""})
    (decoding,) = nlp.get_pipe("tener_ner").decode([doc])  # type: ignore[attr-defined]
    assert "上海" not in [doc.text[entity.start : entity.end] for entity in decoding.entities]


def test_lists_for_some_docs_and_words_of_one_doc(nlp: Language) -> None:
    words = words_of(nlp)
    words.add({COMPANY: PRODUCT, "上海银行": "BANK"}, name="a", force=True)
    words.block({"上海银行": ""}, name="b")
    docs = [nlp.make_doc(TEXT) for _ in range(5)]
    for doc, value in zip(docs, (None, "a", ["a", "b"], {COMPANY: "SHIP"}, ["a", {COMPANY: "SHIP"}]), strict=True):
        doc._.tener_words = value
    found = [{*entities(doc)} for doc in nlp.pipe(docs, batch_size=5)]
    assert [[(COMPANY, label) in ents for label in (PRODUCT, "SHIP")] for ents in found] == [
        [False, False],
        [True, False],
        [True, False],
        [False, True],
        [False, True],
    ]
    assert [("上海银行", "BANK") in ents for ents in found] == [False, True, False, False, True]
    doc = nlp.make_doc(TEXT)
    doc._.tener_words = {COMPANY: 3}
    with pytest.raises(ValueError, match=r"must give a label to each word, but got \{'云海一号': 3\}"):
        nlp(doc)


@pytest.mark.parametrize("kind", ["tener", "flat"])
def test_lists_are_saved_with_the_pipeline(kind: str, tmp_path: Any) -> None:
    nlp = load(kind)
    words = words_of(nlp)
    words.add({COMPANY: PRODUCT}, force=True)
    words.block(["上海"], name="a")
    words.add({COMPANY: "SHIP"}, name="here", force=True, saved=False)
    nlp.to_disk(tmp_path / "saved")
    copies = [spacy.load(tmp_path / "saved"), spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())]
    for copied in copies:
        assert words_of(copied).names == ["a"]
        assert words_of(copied).forced() == {COMPANY: PRODUCT}
        assert words_of(copied).blocked("a") == {"上海": ""}
        assert (COMPANY, PRODUCT) in entities(copied(TEXT))
    assert words_of(pickle.loads(pickle.dumps(nlp))).forced("here") == {COMPANY: "SHIP"}
    words.clear()
    words.clear("a")
    nlp.to_disk(tmp_path / "saved")
    assert words_of(spacy.load(tmp_path / "saved")).names == []
    (tmp_path / "saved" / "tener_ner" / "lists").write_bytes(b"\xc1")
    with pytest.raises(ValueError, match="Cannot load the component 'tener_ner'"):
        spacy.load(tmp_path / "saved")


def test_a_file_of_words_replaces_the_forced_ones(nlp: Language, tmp_path: Any) -> None:
    words, path = words_of(nlp), tmp_path / "names.txt"
    words.add({"旧词": "OLD"}, force=True)
    words.block(["上海"])
    path.write_text(f"{COMPANY}\t{PRODUCT}\n和田\n少见\t1\tRARE\n", encoding="utf8")
    words.read(path, "GPE", min_frequency=2, force=True)
    assert words.forced() == {COMPANY: PRODUCT, "和田": "GPE"}
    assert words.blocked() == {"上海": ""}
    path.write_text(f"{COMPANY}\t{PRODUCT}\n{COMPANY}\tSHIP\n", encoding="utf8")
    with pytest.raises(ValueError, match=r"names.txt:2: '云海一号' has two labels, PRODUCT and SHIP\. Give it one"):
        words.read(path, force=True)
    path.write_text(f"{COMPANY}\n", encoding="utf8")
    with pytest.raises(ValueError, match=r"names.txt:1: '' is no label\. Give a label to each word"):
        words.read(path, force=True)
    assert words.forced() == {COMPANY: PRODUCT, "和田": "GPE"}


def test_bad_words_and_labels_are_refused_or_left_out_with_a_message(nlp: Language) -> None:
    words = words_of(nlp)
    with pytest.warns(UserWarning, match=r"2 of the words .* were left out, such as \['', '甲'\]: words have 2 to 40"):
        words.add({"": PRODUCT, "甲": PRODUCT, COMPANY: PRODUCT}, force=True)
    assert words.forced() == {COMPANY: PRODUCT}
    for label in ("", " ", "\ud800"):
        with pytest.raises(RemedyError, match="is no label"):
            words.add([COMPANY], label, force=True)
    with pytest.raises(RemedyError, match="has two labels, PRODUCT and SHIP"):
        words.add({COMPANY: PRODUCT, f"{COMPANY} ": "SHIP"}, force=True)
    with pytest.raises(RemedyError, match=r"does not use words\. .* or set force=True"):
        words.add([COMPANY])
    assert words.words() == {}


def test_words_that_are_evidence_and_words_that_are_forced_share_names() -> None:
    nlp = load("flat")
    words = words_of(nlp)
    words.add(["云海"], name="a", saved=False)
    words.add({COMPANY: PRODUCT}, name="b", force=True)
    assert words.names == ["a", "b"]
    assert (words.words("a"), words.forced("a"), words.words("b")) == ({"云海": ""}, {}, {})
    doc = nlp.make_doc(TEXT)
    doc._.tener_words = ["a", "b"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (COMPANY, PRODUCT) in entities(nlp(doc))
    copied = spacy.util.load_model_from_config(nlp.config).from_bytes(nlp.to_bytes())
    assert words_of(copied).names == ["b"]


def test_a_forced_word_of_parts_of_tokens_is_none(nlp: Language) -> None:
    words_of(nlp).add({"海银": PRODUCT}, force=True)
    assert PRODUCT not in {ent.label_ for ent in nlp(Doc(nlp.vocab, words=["上海", "银行"], spaces=[False] * 2)).ents}


def test_training_pays_no_attention_to_lists(nlp: Language) -> None:
    from small_systems import examples_of

    examples = examples_of(nlp)
    expected = nlp.get_pipe("tener_ner").update(examples)["tener_ner"]  # type: ignore[attr-defined]
    words_of(nlp).add({"银行": "GPE"}, force=True)
    assert nlp.get_pipe("tener_ner").update(examples)["tener_ner"] == expected  # type: ignore[attr-defined]


def test_what_stands_on_the_pipeline_knows_its_lists(nlp: Language) -> None:
    words_of(nlp).add({COMPANY: PRODUCT}, force=True)
    annotator = Annotator("", AnnotateSettings(probability=True))
    annotator.use(nlp)
    (answer,) = annotator([{"text": TEXT}])
    assert (answer["entities"][-1]["label"], answer["entities"][-1]["probability"]) == (PRODUCT, pytest.approx(1.0))
    (explained,) = explain(nlp, TEXT).texts
    assert [entity.from_list for entity in explained.entities] == [
        entity.label == PRODUCT for entity in explained.entities
    ]
    assert all(bool(entity.evidence) != entity.from_list for entity in explained.entities)
    assert entity_labels(nlp) == ["GPE", "ORG", "PER", PRODUCT]
    (task,) = make_tasks(nlp, [Suggestion({"text": TEXT}, 0.0)], entity_labels(nlp))
    assert task.entities[-1].label == PRODUCT


def test_a_word_of_another_script_is_the_same_word(nlp: Language) -> None:
    words = words_of(nlp)
    words.add({"雲海": PRODUCT}, force=True)
    assert [ent.text for ent in nlp("云海和雲海").ents if ent.label_ == PRODUCT] == ["云海", "雲海"]
    words.add({"云海": "SHIP"}, force=True)
    assert words.forced() == {"云海": "SHIP"}
    with pytest.raises(RemedyError, match="has two labels, SHIP and PRODUCT"):
        words.add({"云海": "SHIP", "雲海": PRODUCT}, force=True)
