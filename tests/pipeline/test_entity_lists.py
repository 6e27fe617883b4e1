"""Entity lists, which take precedence over the model, and blocklists of words that no model labels as entities."""

from __future__ import annotations

import pickle
import random
import time
import warnings
from pathlib import Path
from typing import Any, Literal
from unicodedata import normalize

import pytest
import spacy
import srsly
from small_systems import SYSTEMS, UNSEEN, examples_of, trained
from spacy.language import Language
from spacy.tokens import Doc

from spacy_tener.annotate import AnnotateSettings, Annotator
from spacy_tener.errors import UserError
from spacy_tener.explain import explain
from spacy_tener.pipeline.entity_lists import EntityLists
from spacy_tener.pipeline.finding import TextWithWords, entity_labels, known_labels, make_doc
from spacy_tener.pipeline.learning.callbacks import extension
from spacy_tener.pipeline.masks import NO_ENTITIES
from spacy_tener.review.active_learning import Suggestion, make_tasks

COMPANY, PRODUCT = "云海一号", "PRODUCT"
TEXT = f"吴小明在上海银行买了{COMPANY}"


def load(system: str = "tener") -> tuple[Language, Any]:
    nlp = spacy.load(trained(system))
    return nlp, nlp.add_pipe("entity_lists", before=nlp.pipe_names[-1])


def entities(doc: Doc) -> list[tuple[str, str]]:
    return [(ent.text, ent.label_) for ent in doc.ents]


@pytest.fixture
def blank() -> Language:
    nlp = spacy.blank("zh")
    nlp.add_pipe("entity_lists")
    return nlp


@pytest.fixture
def lists(blank: Language) -> EntityLists:
    return blank.get_pipe("entity_lists")  # type: ignore[return-value]


@pytest.mark.parametrize("system", [*SYSTEMS, "characters"])
@pytest.mark.parametrize("label", ["GPE", PRODUCT])
def test_entity_list_takes_precedence_over_model(system: str, label: str) -> None:
    nlp, lists = load(system)
    before = entities(nlp(UNSEEN))
    lists.add({COMPANY: label, "行买": label})
    assert lists.words() == {COMPANY: label, "行买": label}
    assert {(COMPANY, label), ("行买", label)} <= {*entities(nlp(TEXT))}
    assert entities(nlp(UNSEEN)) == before
    ner: Any = nlp.get_pipe("tener_ner")
    (decoding,) = ner.decode([lists(nlp.make_doc(TEXT))])
    assert decoding.probabilities([(7, 9, label), (10, 14, label), (10, 13, label)]) == [1.0, 1.0, 0.0]
    assert [entity.offsets for entity in decoding.existing] == [(7, 9, label), (10, 14, label)]


@pytest.mark.parametrize("label", ["ORG", PRODUCT])
def test_listed_entity_acts_like_existing_entity(label: str) -> None:
    nlp, lists = load()
    doc = nlp.make_doc(TEXT)
    doc.set_ents([doc.char_span(7, 9, label=label)], default="missing")  # type: ignore[list-item]
    expected = entities(nlp(doc))
    lists.add({"行买": label})
    assert entities(nlp(TEXT)) == expected
    assert ("行买", label) in expected


def test_overlaps_are_resolved_by_length_then_list_order(blank: Language, lists: Any) -> None:
    lists.add({"乙丙": "A", "甲乙": "B", "丙丁戊": "C"})
    assert entities(blank("甲乙丙丁")) == [("乙丙", "A")]
    assert entities(blank("甲乙丙丁戊")) == [("甲乙", "B"), ("丙丁戊", "C")]
    lists.add({"甲乙": "D"}, name="last")
    doc = blank.make_doc("甲乙丙丁")
    doc._.tener_words = "last"
    assert entities(blank(doc)) == [("甲乙", "D")]
    lists.block(["丙丁戊"], name="last")
    doc = blank.make_doc("甲乙丙丁戊")
    doc._.tener_words = "last"
    assert entities(blank(doc)) == [("甲乙", "D")]


@pytest.mark.parametrize("seed", range(20))
def test_overlapping_words_are_resolved_like_in_a_loop(
    blank: Language, lists: Any, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr("spacy_tener.pipeline.entity_lists._BLOCK_SIZE", 4)
    rng = random.Random(seed)
    text = "".join(rng.choices("甲乙", k=60))
    words = {"".join(rng.choices("甲乙", k=rng.randint(2, 5))): rng.choice(["A", "B", ""]) for _ in range(12)}
    later = {"".join(rng.choices("甲乙", k=rng.randint(2, 5))): rng.choice(["C", "D"]) for _ in range(4)}
    lists.add({word: label for word, label in words.items() if label})
    lists.block([word for word, label in words.items() if not label])
    doc = blank.make_doc(text)
    doc.set_ents([doc.char_span(20, 23, label="GPE")], default="missing")  # type: ignore[list-item]
    doc._.tener_words = later
    order = [*later, *lists.words(), *lists.blocked()]
    labels, occupied, found, blocked = words | later, set(range(20, 23)), [(20, 23, "GPE")], set[int]()
    matches = [  # later lists take precedence
        (-len(word), word not in later, order.index(word), start, start + len(word), labels[word])
        for word in labels
        for start in range(60)
        if text.startswith(word, start)
    ]
    for *_, start, end, label in sorted(matches):
        if occupied.isdisjoint(range(start, end)):
            occupied.update(range(start, end))
            found += [(start, end, label)] if label else []
            blocked.update(range(start, end) if not label else ())
    with warnings.catch_warnings(action="ignore"):
        doc = blank(doc)
    assert [(ent.start, ent.end, ent.label_) for ent in doc.ents] == sorted(found)
    assert {token.i for token in doc if token.ent_iob_ == "B" and not token.ent_type_} == blocked


def test_words_of_many_lengths_at_each_character_take_no_long_time(blank: Language, lists: Any) -> None:
    lists.add({"一" * length: "A" for length in range(2, 41)})
    started = time.process_time()
    assert len(blank("一" * 20_000).ents) == 500
    assert time.process_time() - started < 4


@pytest.mark.parametrize(
    ("word", "text", "expected"),
    [
        ("AI", "MAIL AI AIR", [5]),
        ("シカ", "シカとシカ\u3099ク", [0]),
        ("シガ", "シカとシカ\u3099ク", [3]),
        ("5G", "15G和5G与5G2", [4]),
        ("50", "3.50元50个1,500个50", [5, 14]),
        ("né", "René né", [5]),
        ("cafe", "cafe\u0301 café cafe", [11]),
        ("Мос", "Москва Мос", [7]),
        ("New York", "New York和Newer New Yorks", [0]),
        ("云海AI", "云海AI很好云海AIR", [0]),
        ("東京", "東京都", [0]),
        ("ＡＩ", "AI和ＡＩ", [0, 3]),
        ("OpenAI", "OpenAI¹发布 ①OpenAI OpenAI② OpenAI3", [0, 11, 18]),
        ("AI芯片", "①AI芯片 ⓐAI芯片 xAI芯片", [1, 7]),
        ("50元", "②50元和450元 1，50元 3．50元", [1, 12]),
    ],
)
def test_match_does_not_split_alphanumeric_words(
    blank: Language, lists: Any, word: str, text: str, expected: list[int]
) -> None:
    lists.add([word], PRODUCT)
    assert [ent.start_char for ent in blank(text).ents] == expected


def test_existing_entity_overrides_list_with_single_warning(blank: Language, lists: Any) -> None:
    lists.add({"上海银行": "ORG", COMPANY: PRODUCT})
    same = blank.make_doc(TEXT)
    same.ents = [same.char_span(4, 8, label="ORG")]  # type: ignore[list-item]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ("上海银行", "ORG") in entities(blank(same))
    doc, again = blank.make_doc(TEXT), blank.make_doc(TEXT)
    for text in (doc, again):
        text.set_ents([text.char_span(4, 6, label="GPE")], default="missing")  # type: ignore[list-item]
    with pytest.warns(UserWarning, match=r"overlaps with an existing entity of the Doc, which is") as caught_warnings:
        found = [entities(doc) for doc in blank.pipe([doc, again])]
    assert len(caught_warnings) == 1
    assert found == [[("上海", "GPE"), (COMPANY, PRODUCT)]] * 2


@pytest.mark.parametrize("system", ["tener", "characters"])
def test_later_entities_contain_no_blocklisted_words(system: str) -> None:
    nlp, lists = load(system)
    texts = ["王小明去了上海", "上海银行的王经理说南京很大，北京也很大，今天天气很好", "北京大学在北京"]
    before = [entities(doc) for doc in nlp.pipe(texts)]
    lists.block(["上海", "北京"])
    assert lists.blocked() == ["上海", "北京"]
    assert lists.words() == {}
    found = [entities(doc) for doc in nlp.pipe(texts)]
    assert not any("上海" in text or "北京" in text for ents in found for text, _ in ents)
    ner: Any = nlp.get_pipe("tener_ner")
    (decoding,) = ner.decode([lists(nlp.make_doc(texts[0]))])
    assert decoding.probabilities([(5, 7, "GPE"), (4, 7, "ORG")]) == [0.0, 0.0]
    assert sum(sequence.probability for sequence in decoding.k_best(50_000)) == pytest.approx(1.0)
    assert len(decoding.k_best(5)) == 5
    lists.add({"上海银行": "ORG"})
    assert ("上海银行", "ORG") in entities(nlp(texts[1]))
    lists.remove(["上海", "北京", "上海银行"])
    assert [entities(doc) for doc in nlp.pipe(texts)] == before


@pytest.mark.parametrize(
    ("name", "config"), [("entity_ruler", {}), ("span_ruler", {"annotate_ents": True, "overwrite": False})]
)
def test_rules_keep_listed_entities_but_ignore_blocklist(
    blank: Language, lists: Any, name: str, config: dict[str, bool]
) -> None:
    ruler: Any = blank.add_pipe(name, config=config)
    ruler.add_patterns([{"label": "GPE", "pattern": "上海"}, {"label": "ORG", "pattern": "吴小"}])
    lists.add({COMPANY: PRODUCT})
    lists.block(["上海"])
    doc = blank(TEXT)
    assert {(COMPANY, PRODUCT), ("上海", "GPE")} <= {*entities(doc)}
    assert blank.pipe_factories["entity_lists"] == "entity_lists"
    assert "doc.ents" in blank.analyze_pipes()["summary"]["entity_lists"]["assigns"]


def test_tener_words_selects_lists_and_adds_words(blank: Language, lists: Any) -> None:
    lists.add({COMPANY: PRODUCT, "上海银行": "BANK"}, name="a")
    lists.block(["上海银行"], name="b")
    docs = [blank.make_doc(TEXT) for _ in range(5)]
    for doc, value in zip(docs, (None, "a", ["a", "b"], {COMPANY: "SHIP"}, ["a", {COMPANY: "SHIP"}]), strict=True):
        doc._.tener_words = value
    assert [entities(doc) for doc in blank.pipe(docs, batch_size=5)] == [
        [],
        [("上海银行", "BANK"), (COMPANY, PRODUCT)],
        [(COMPANY, PRODUCT)],
        [(COMPANY, "SHIP")],
        [("上海银行", "BANK"), (COMPANY, "SHIP")],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({COMPANY: 3}, r"must be strings, but got '云海一号' with the tag 3"),
        ({COMPANY: ["PRODUCT"]}, r"must be strings, but got '云海一号' with the tag \['PRODUCT'\]"),
        ({COMPANY: " "}, r"' ' is not a valid label\. Use a label that is not blank"),
        ({COMPANY: ""}, r"'云海一号' has no label\. Specify a label for each word"),
        ({"云海": PRODUCT, "雲海": "SHIP"}, r"'雲海' has two labels, PRODUCT and SHIP\. Use only one"),
    ],
)
def test_doc_words_are_validated_like_list_words(
    blank: Language, lists: Any, words: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        lists.add(words)
    doc = blank.make_doc(TEXT)
    doc._.tener_words = words
    with pytest.raises(ValueError, match=message):
        blank(doc)
    failed: list[Doc] = []
    lists.set_error_handler(lambda name, pipe, docs, error: failed.extend(docs))
    assert list(blank.pipe([doc])) == []
    assert failed == [doc]


def test_invalid_doc_words_are_skipped_with_warning(blank: Language) -> None:
    doc = blank.make_doc("甲在云海一号")
    doc._.tener_words = {"甲": PRODUCT, COMPANY: PRODUCT}
    with pytest.warns(UserWarning, match=r"1 of the words for the list 'doc\._\.tener_words' were left out: a word"):
        assert entities(blank(doc)) == [(COMPANY, PRODUCT)]


def test_lists_survive_serialization_and_multiprocessing(blank: Language, lists: Any, tmp_path: Any) -> None:
    lists.add({COMPANY: PRODUCT})
    lists.block(["上海"], name="a")
    lists.add({COMPANY: "SHIP"}, name="here", saved=False)
    blank.to_disk(tmp_path / "saved")
    assert any(line.startswith("spacy_tener") for line in spacy.load(tmp_path / "saved").meta["requirements"])
    sourced = spacy.blank("zh")
    sourced.add_pipe("entity_lists", source=spacy.load(tmp_path / "saved"), name="other")
    from_bytes_copy = spacy.util.load_model_from_config(blank.config).from_bytes(blank.to_bytes())
    for copied in (spacy.load(tmp_path / "saved"), from_bytes_copy, sourced):
        loaded: Any = copied.get_pipe(copied.pipe_names[0])
        assert loaded.names == ["a"]
        assert loaded.words() == {COMPANY: PRODUCT}
        assert loaded.blocked("a") == ["上海"]
        assert entities(copied(TEXT)) == [(COMPANY, PRODUCT)]
    pickled: Any = pickle.loads(pickle.dumps(blank)).get_pipe("entity_lists")
    assert pickled.words("here") == {COMPANY: "SHIP"}
    assert [entities(doc) for doc in blank.pipe([TEXT, TEXT], n_process=2)] == [[(COMPANY, PRODUCT)]] * 2
    lists.clear()
    lists.clear("a")
    blank.to_disk(tmp_path / "saved")
    emptied: Any = spacy.load(tmp_path / "saved").get_pipe("entity_lists")
    assert emptied.names == []
    assert emptied.words() == {}
    (tmp_path / "saved" / "entity_lists" / "lists").write_bytes(b"\xc1")
    with pytest.raises(ValueError, match="Cannot load the component 'entity_lists'"):
        spacy.load(tmp_path / "saved")


def test_damaged_file_of_lists_raises_error(lists: Any) -> None:
    lists.add({COMPANY: "ORG", "上海": "GPE"})
    lists.block(["云海"], name="clouds")
    data = lists.to_bytes()
    for position in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[position // 8] ^= 1 << position % 8
        with pytest.raises(ValueError, match=r"Cannot load the component 'entity_lists'.*(damaged|restore)"):
            lists.from_bytes(bytes(damaged))
    assert lists.to_bytes() == data


def test_lists_that_were_saved_without_checksum_are_loaded(lists: Any) -> None:
    lists.from_bytes(srsly.msgpack_dumps({"": [[COMPANY, "ORG", False]], "clouds": [["云海", "", False]]}))
    assert (lists.words(), lists.blocked("clouds")) == ({COMPANY: "ORG"}, ["云海"])


def test_file_replaces_listed_entities_but_not_blocklist(lists: Any, tmp_path: Any) -> None:
    path = tmp_path / "names.txt"
    lists.add({"旧词": "OLD"})
    lists.block(["上海"])
    path.write_text(f"{COMPANY}\t{PRODUCT}\n和田\n少见\t1\tRARE\n", encoding="utf8")
    lists.read(path, "GPE", min_frequency=2)
    assert lists.words() == {COMPANY: PRODUCT, "和田": "GPE"}
    assert lists.blocked() == ["上海"]
    path.write_text(f"{COMPANY}\t{PRODUCT}\n{COMPANY}\tSHIP\n", encoding="utf8")
    with pytest.raises(ValueError, match=r"names.txt:2: '云海一号' has two labels, PRODUCT and SHIP\. Use only one"):
        lists.read(path)
    for line in (COMPANY, "iphone 15 pro", "galaxy 20 s", "和田\t3"):
        path.write_text(f"南京\tGPE\n{line}\n", encoding="utf8")
        word = line.partition("\t")[0]
        with pytest.raises(ValueError, match=rf"names.txt:2: '{word}' has no label\. Pass `label` for .* write a tab"):
            lists.read(path)
    assert lists.words() == {COMPANY: PRODUCT, "和田": "GPE"}
    path.write_text("iphone 15 pro\ngalaxy 20 s\n北京 3 ns\n华为\t5G\n", encoding="utf8")
    lists.read(path, PRODUCT)
    assert lists.words() == {"iphone 15 pro": PRODUCT, "galaxy 20 s": PRODUCT, "北京 3 ns": PRODUCT, "华为": "5G"}


def test_invalid_words_and_labels_raise_errors_or_warnings(lists: Any) -> None:
    with pytest.warns(UserWarning, match=r"2 of the words .* were left out, such as \['', '甲'\]: a word must have 2"):
        lists.add({"": PRODUCT, "甲": PRODUCT, COMPANY: PRODUCT})
    assert lists.words() == {COMPANY: PRODUCT}
    with pytest.raises(UserError, match="'云海一号' has no label"):
        lists.add([COMPANY], "")
    for label in (" ", "\ud800"):
        with pytest.raises(UserError, match="is not a valid label"):
            lists.add([COMPANY], label)
    with pytest.raises(UserError, match="has two labels, PRODUCT and SHIP"):
        lists.add({COMPANY: PRODUCT, f"{COMPANY} ": "SHIP"})
    with pytest.raises(ValueError, match="not the string"):
        lists.block(COMPANY)
    with pytest.raises(ValueError, match="Blocked words have no labels"):
        lists.block({COMPANY: PRODUCT})
    with pytest.raises(ValueError, match="Unknown word list"):
        lists.words("unknown")


def test_dictionary_with_another_label_is_rejected(lists: Any) -> None:
    with pytest.raises(ValueError, match=r"label of each word, so 'B' cannot be passed as well\. Pass a list of words"):
        lists.add({COMPANY: "A"}, label="B")
    assert lists.words() == {}


def test_missing_file_error_names_component_and_fix(blank: Language, lists: Any, tmp_path: Path) -> None:
    lists.add({COMPANY: "ORG"})
    blank.to_disk(tmp_path)
    path = tmp_path / "entity_lists" / "lists"
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"component 'entity_lists'.*No such file.*Restore the file") as raised:
        spacy.load(tmp_path)
    assert raised.value.filename == str(path)


def test_tener_words_selects_lexicons_and_entity_lists() -> None:
    nlp, lists = load("flat")
    ner: Any = nlp.get_pipe("tener_ner")
    ner.lexicon.add(["云海"], name="evidence")
    lists.add({COMPANY: PRODUCT}, name="entities")
    doc = nlp.make_doc(TEXT)
    doc._.tener_words = ["evidence", "entities"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (COMPANY, PRODUCT) in entities(nlp(doc))
    doc = nlp.make_doc(TEXT)
    doc._.tener_words = "nowhere"
    with pytest.warns(UserWarning, match=r"contains unknown names of word lists, which are ignored: 'nowhere'"):
        nlp(doc)


def test_misaligned_words_are_skipped_with_single_warning(blank: Language, lists: Any) -> None:
    lists.add({"海银": PRODUCT, "银行": "ORG"})
    docs = [Doc(blank.vocab, words=["上海", "银行"], spaces=[False] * 2) for _ in range(2)]
    with pytest.warns(UserWarning, match=r"ignores '海银' and other words that do not align with") as caught_warnings:
        assert [entities(doc) for doc in blank.pipe(docs)] == [[("银行", "ORG")]] * 2
    assert len(caught_warnings) == 1


def test_warnings_do_not_contain_texts_and_words_of_docs(blank: Language, lists: Any) -> None:
    """Python keeps the text of warnings, and programs write warnings to their logs."""
    lists.add({"云海": PRODUCT})
    overlapping = blank.make_doc("云海一号")
    overlapping.set_ents([overlapping.char_span(1, 3, label="GPE")], default="missing")  # type: ignore[list-item]
    misaligned = Doc(blank.vocab, words=["吴重", "阳"], spaces=[False] * 2)
    invalid = blank.make_doc("密")
    misaligned._.tener_words, invalid._.tener_words = {"重阳": "PER"}, {"密": "PER"}
    with pytest.warns(UserWarning, match="ignores|overlaps|left out") as caught_warnings:
        assert [entities(doc) for doc in blank.pipe([overlapping, misaligned, invalid])] == [[("海一", "GPE")], [], []]
    messages = [str(warning.message) for warning in caught_warnings]
    assert len(messages) == 3
    assert not set("云海一号吴重阳密") & set("".join(messages))


def test_training_ignores_entity_lists() -> None:
    nlp, lists = load()
    ner, examples = nlp.get_pipe("tener_ner"), examples_of(nlp)
    expected = ner.update(examples)["tener_ner"]  # type: ignore[attr-defined]
    lists.add({"银行": "GPE"})
    assert ner.update(examples)["tener_ner"] == expected  # type: ignore[attr-defined]


def test_tools_use_listed_entities_and_labels() -> None:
    nlp, lists = load()
    lists.add({COMPANY: PRODUCT})
    annotator = Annotator("", AnnotateSettings(probability=True))
    annotator.use(nlp)
    (answer,) = annotator([{"text": TEXT}])
    assert (answer["entities"][-1]["label"], answer["entities"][-1]["probability"]) == (PRODUCT, 1.0)
    (explained,) = explain(nlp, TEXT).texts
    assert [entity.is_existing for entity in explained.entities] == [
        entity.label == PRODUCT for entity in explained.entities
    ]
    assert all(bool(entity.attributions) != entity.is_existing for entity in explained.entities)
    assert entity_labels(nlp) == ["GPE", "ORG", "PER", PRODUCT]
    assert known_labels(nlp) == {"GPE", "ORG", "PER", PRODUCT}
    (task,) = make_tasks(nlp, [Suggestion({"text": TEXT}, 0.0)], entity_labels(nlp))
    assert task.entities[-1].label == PRODUCT


@pytest.mark.parametrize("has_lists", [True, False])
def test_text_with_words_works_with_any_pipeline(has_lists: bool) -> None:
    nlp = load()[0] if has_lists else spacy.load(trained("tener"))
    doc = make_doc(nlp, TextWithWords(TEXT, {COMPANY: PRODUCT}))
    assert (COMPANY, PRODUCT) in entities(nlp(doc))


@pytest.mark.parametrize("threshold", [{"GPE": 0.5, PRODUCT: 0.5}, {PRODUCT: 0.5}])
def test_threshold_for_label_unknown_to_model_raises_error(threshold: Any) -> None:
    nlp, lists = load()
    lists.add({COMPANY: PRODUCT})
    nlp.get_pipe("tener_ner").cfg["threshold"] = threshold  # type: ignore[attr-defined]
    for text in (TEXT, "今天", ""):
        with pytest.raises(ValueError, match=f"'{PRODUCT}'"):
            nlp(text)


def test_extension_renames_labels_in_lists() -> None:
    nlp, lists = load()
    lists.add({COMPANY: PRODUCT, "和田": "GPE"})
    lists.add({"云海": "GPE"}, name="a")
    lists.block(["上海"])
    extension(["NEW"], trained("tener"), rename={"GPE": "PLACE"})(nlp)
    assert "PLACE" in nlp.get_pipe("tener_ner").labels  # type: ignore[attr-defined]
    assert lists.words() == {COMPANY: PRODUCT, "和田": "PLACE"}
    assert lists.words("a") == {"云海": "PLACE"}
    assert lists.blocked() == ["上海"]
    assert "GPE" not in entity_labels(nlp)
    lists.rename({"": "PLACE"})
    assert lists.blocked() == ["上海"]


def test_traditional_and_simplified_words_are_equivalent(blank: Language, lists: Any) -> None:
    lists.add({"雲海": PRODUCT})
    assert [ent.text for ent in blank("云海和雲海").ents] == ["云海", "雲海"]
    lists.add({"云海": "SHIP"})
    assert lists.words() == {"云海": "SHIP"}
    lists.block(["雲海"])
    assert lists.words() == {}
    with pytest.raises(UserError, match="has two labels, SHIP and PRODUCT"):
        lists.add({"云海": "SHIP", "雲海": PRODUCT})


@pytest.mark.parametrize("form_of_text", ["NFC", "NFD"])
@pytest.mark.parametrize("form_of_list", ["NFC", "NFD"])
def test_words_are_found_in_every_unicode_form(
    blank: Language, lists: Any, form_of_list: Literal["NFC", "NFD"], form_of_text: Literal["NFC", "NFD"]
) -> None:
    words = ["Café Müller", "ガス会社", "한국"]
    lists.add([normalize(form_of_list, word) for word in words], "ORG")
    text = normalize(form_of_text, "在Café Müller。ガス会社、한국")
    assert [ent.text for ent in blank(text).ents] == [normalize(form_of_text, word) for word in words]
    lists.add([normalize(form_of_text, words[0])], "BAR")
    assert (len(lists.words()), blank(text).ents[0].label_) == (3, "BAR")
    lists.remove([normalize("NFC", word) for word in words])
    assert lists.words() == {}


def test_unknown_list_error_names_existing_lists() -> None:
    lists: Any = spacy.blank("zh").add_pipe("entity_lists")
    with pytest.raises(ValueError, match=r"Unknown word list 'day'\. There are no named word lists\. Create"):
        lists.remove(["昨天"], name="day")
    lists.add(["昨天"], "DATE", name="days")
    with pytest.raises(ValueError, match=r"Unknown word list 'day'\. Use one of: days\."):
        lists.remove(["昨天"], name="day")


def test_only_invalid_docs_of_a_batch_are_passed_to_the_error_handler(blank: Language, lists: Any) -> None:
    lists.add(["云海一号"], PRODUCT)
    docs = [blank.make_doc("云海一号很好") for _ in range(10)]
    docs[3]._.tener_words = 5
    failed: list[Any] = []
    blank.get_pipe("entity_lists").set_error_handler(lambda name, pipe, docs, error: failed.append(docs))
    processed = list(blank.pipe(docs))
    assert [[doc.text for doc in docs] for docs in failed] == [["云海一号很好"]]
    assert processed == docs[:3] + docs[4:]
    assert all(entities(doc) == [("云海一号", PRODUCT)] for doc in processed)


def test_excluded_spans_are_written_once(blank: Language, lists: Any) -> None:
    lists.add(["北京大学"], "ORG")
    lists.block(["北京"])
    doc = blank(blank("他在北京大学"))
    assert [(span.start, span.end) for span in doc.spans[NO_ENTITIES]] == [(2, 4)]
