"""Silver-standard data: the annotation that is confident enough, missing annotation, and the command."""

import json

import numpy as np
import pytest
import spacy
from command_line import run_tener
from small_corpora import add_rules, rule_pipeline
from small_systems import learn
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus, Example

import spacy_tener.training.silver as silver_module
from spacy_tener.corpora.docs import read_docs
from spacy_tener.errors import UserError
from spacy_tener.training.silver import (
    SilverStats,
    SilverThresholds,
    TextProbabilities,
    average_probabilities,
    keep_probable,
    unknown_labels,
)

TEXT = "王小明去了上海"


@pytest.fixture(scope="module")
def trained_path(tmp_path_factory):
    """The path of a pipeline with a `tener_ner` that was trained on three sentences."""
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner")
    data = [(TEXT, [(0, 3, "PER"), (5, 7, "GPE")]), ("今天天气很好", []), ("北京很大", [(0, 2, "GPE")])]
    examples = [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in data]
    learn(nlp, examples, optimizer=nlp.initialize(lambda: examples), steps=40)
    path = tmp_path_factory.mktemp("teacher") / "model"
    nlp.to_disk(path)
    return path


@pytest.fixture
def save_rules(tmp_path):
    """A function that saves a rule-based pipeline, and returns its path."""

    def save(**patterns):
        rule_pipeline(**patterns).to_disk(path := tmp_path / "-".join(patterns))
        return path

    return save


def make_probabilities(entities, outside):
    return TextProbabilities(spacy.blank("zh")(TEXT), entities, np.array(outside))


def iob_tags(doc):
    return [f"{token.ent_iob_}-{token.ent_type_}" if token.ent_type_ else token.ent_iob_ for token in doc]


@pytest.mark.parametrize(
    ("entities", "outside", "thresholds", "tags"),
    [
        ((0.95, 0.7), [0.01, 0.02, 0.02, 0.99, 0.8, 0.3, 0.3], (0.9, 0.9), "PPPO???"),
        ((0.95, 0.7), [0.01, 0.02, 0.02, 0.99, 0.8, 0.3, 0.3], (0.6, 0.75), "PPPOOGG"),
        # Probabilities equal to the threshold are sufficient. The default threshold is above 0.5.
        ((0.75, 0.5), [0.25, 0.25, 0.25, 0.75, 0.75, 0.5, 0.5], (0.75, 0.75), "PPPOO??"),
        ((0.75, 0.5), [0.25, 0.25, 0.25, 0.75, 0.75, 0.5, 0.5], (), "PPPOO??"),
        ((0.75, 0.5), [0.25, 0.25, 0.25, 0.75, 0.75, 0.5, 0.5], (0.76, 0.76), "???????"),
    ],
)
def test_uncertain_tokens_have_missing_annotation(entities, outside, thresholds, tags):
    probabilities = make_probabilities({(0, 3, "PER"): entities[0], (5, 7, "GPE"): entities[1]}, outside)
    doc = keep_probable(probabilities, SilverThresholds(*thresholds))
    assert "".join((token.ent_type_ or token.ent_iob_ or "?")[0] for token in doc) == tags


def test_token_is_outside_if_all_characters_are_outside():
    doc = Doc(spacy.blank("zh").vocab, words=["王小明", "去了"], spaces=[False, False])
    probabilities = TextProbabilities(doc, {}, np.array([0.9, 0.2, 0.9, 0.9, 0.9]))
    assert iob_tags(keep_probable(probabilities, SilverThresholds())) == ["", "O"]


def test_more_probable_overlapping_entity_is_selected():
    probabilities = make_probabilities(
        {(0, 3, "PER"): 0.6, (1, 3, "ORG"): 0.9, (5, 7, "GPE"): 0.7}, [0.6, 0, 0, 1, 1, 0, 0]
    )
    found = iob_tags(keep_probable(probabilities, SilverThresholds(entity=0.55, outside=0.55)))
    assert found == ["O", "B-ORG", "I-ORG", "O", "O", "B-GPE", "I-GPE"]


def test_teacher_includes_entities_of_other_components(trained_path):
    """A rule before or after the model, with a label that the model lacks, and a component that removes entities."""
    Language.component("no_places", func=remove_places)
    for before in ("tener_ner", ""):
        teacher = spacy.load(trained_path)
        add_rules(teacher, VERB="去了", before=before, config={"overwrite_ents": True})
        teacher.add_pipe("no_places", last=True)
        assert [(ent.text, ent.label_) for ent in teacher(TEXT).ents] == [("王小明", "PER"), ("去了", "VERB")]
        [found] = average_probabilities([teacher], [TEXT])
        assert found.outside[3:5].tolist() == [0.0, 0.0]
        assert (found.entities[3, 5, "VERB"], (5, 7, "GPE") in found.entities) == (1.0, False)
        assert iob_tags(keep_probable(found, SilverThresholds())) == [
            "B-PER",
            "I-PER",
            "I-PER",
            "B-VERB",
            "I-VERB",
            "",
            "",
        ]
        assert unknown_labels({"all": teacher, "crf": spacy.load(trained_path)}) == {"crf": ["VERB"]}


def test_entities_of_earlier_component_keep_their_probability(trained_path):
    teacher, alone = spacy.load(trained_path), spacy.load(trained_path)
    for nlp in (teacher, alone):
        nlp.get_pipe("tener_ner").cfg["temperature"] = 3.0
    teacher.add_pipe("tener_ner", name="later", source=spacy.load(trained_path))
    [found], [expected] = (average_probabilities([nlp], [TEXT]) for nlp in (teacher, alone))
    for place in [(0, 3, "PER"), (5, 7, "GPE")]:
        assert found.entities[place] == pytest.approx(expected.entities[place])
    assert not keep_probable(found, SilverThresholds(entity=0.99)).ents


def remove_places(doc):
    doc.set_ents([ent for ent in doc.ents if ent.label_ != "GPE"])
    return doc


@Language.component("silent_rule")
def silent_rule(doc):
    """A component that does not declare that it sets entities."""
    if (span := doc.char_span(3, 5, label="VERB")) is not None:
        doc.set_ents([span], default="unmodified")
    return doc


@pytest.mark.parametrize("place", ["before", "after"])
def test_components_without_declared_assigns_are_included(trained_path, place):
    teacher = spacy.load(trained_path)
    teacher.add_pipe("silent_rule", **{place: "tener_ner"})
    (doc,) = (keep_probable(found, SilverThresholds()) for found in average_probabilities([teacher], [TEXT]))
    assert [(ent.text, ent.label_) for ent in doc.ents] == [("王小明", "PER"), ("去了", "VERB"), ("上海", "GPE")]


def test_teacher_without_entities_raises_error_or_warns(run_silver, tmp_path):
    nlp = spacy.blank("zh")
    nlp.to_disk(tmp_path / "blank")
    nlp.add_pipe("tener_ner")
    nlp.to_disk(tmp_path / "unlabelled")
    code, output = run_silver(tmp_path / "unlabelled")
    assert code
    assert "unlabelled: no component has entity labels Use a trained pipeline." in output
    code, output = run_silver(tmp_path / "blank")
    assert code == 0
    assert f"No component declares that it assigns doc.ents in the pipeline {tmp_path / 'blank'}" in output


def test_probabilities_of_teachers_are_averaged(trained_path):
    """One teacher is a CRF with probabilities. The other has rules: a correct one, and one with a wrong entity."""
    crf, rules = spacy.load(trained_path), rule_pipeline(GPE="上海", ORG="小明")
    [found] = average_probabilities([crf, rules], [TEXT])
    [alone] = average_probabilities([crf], [TEXT])
    assert found.entities[5, 7, "GPE"] == pytest.approx(0.5 + alone.entities[5, 7, "GPE"] / 2)
    assert found.entities[0, 3, "PER"] == pytest.approx(alone.entities[0, 3, "PER"] / 2)
    assert found.entities[1, 3, "ORG"] == pytest.approx(0.5, abs=0.03)
    assert found.outside == pytest.approx((alone.outside + np.array([1, 0, 0, 1, 1, 0, 0])) / 2)
    assert iob_tags(keep_probable(found, SilverThresholds())) == ["", "", "", "O", "O", "B-GPE", "I-GPE"]


def test_text_longer_than_max_length_is_annotated(trained_path):
    teachers = [spacy.load(trained_path), rule_pipeline(GPE="上海")]
    for teacher in teachers:
        teacher.max_length = len(TEXT) - 1
    for found in average_probabilities(teachers, [TEXT]):
        assert found.doc.text == TEXT
        assert (5, 7, "GPE") in found.entities


def test_labels_unknown_to_a_teacher_are_reported(trained_path):
    teachers = {"crf": spacy.load(trained_path), "rules": rule_pipeline(GPE="上海", ORG="小明")}
    assert unknown_labels(teachers) == {"crf": ["ORG"], "rules": ["PER"]}
    assert unknown_labels({"crf": teachers["crf"], "same": teachers["crf"]}) == {}


def test_teachers_without_declared_labels_are_not_compared(trained_path):
    silent = spacy.blank("zh")
    Language.component("finds_something", assigns=["doc.ents"], func=lambda doc: doc)
    silent.add_pipe("finds_something")
    assert unknown_labels({"crf": spacy.load(trained_path), "silent": silent, "empty": spacy.blank("zh")}) == {}


@pytest.mark.parametrize("value", [0.5, 1.1, float("nan")])
def test_invalid_threshold_raises_error(value):
    for name in ("entity", "outside"):
        with pytest.raises(UserError, match=rf"{name} = {value}. Use a probability above 0.5"):
            SilverThresholds(**{name: value})


def test_few_confident_entities_cause_warning(run_silver, trained_path):
    """Calibration lowers probabilities. A student that is trained on few remaining entities would predict none."""
    nlp = spacy.load(trained_path)
    nlp.get_pipe("tener_ner").cfg["temperature"] = 4.0
    nlp.to_disk(trained_path.parent / "calibrated")
    code, output = run_silver(
        trained_path.parent / "calibrated", "--entity-threshold", "0.95", "--outside-threshold", "0.95"
    )
    assert code == 0
    assert "expected entities were kept" in output
    assert "Only 0 entities of about" in output
    assert "Lower --entity-threshold." in output


def test_stats_count_annotated_and_expected_entities(trained_path):
    teacher = spacy.load(trained_path)
    docs, stats = silver_module.silver(
        [teacher], [{"text": text} for text in (TEXT, "", "他")], SilverThresholds(0.99, 0.99)
    )
    [found] = average_probabilities([teacher], [TEXT])
    assert [doc.text for doc in docs] == [TEXT, "", "他"]
    assert (stats.texts, stats.tokens) == (3, 8)
    assert stats.missing == sum(iob_tags(doc).count("") for doc in docs)
    assert stats.entities == sum(len(doc.ents) for doc in docs)
    assert stats.expected == pytest.approx(sum(found.entities.values()), abs=0.05)
    assert not SilverStats(entities=5, expected=11.0).has_few_entities
    assert SilverStats(entities=5, expected=11.1).has_few_entities


@pytest.fixture
def run_silver(tmp_path):
    raw = tmp_path / "raw.txt"
    raw.write_text("\n".join([TEXT, "", "北京很大", "他去了上海"]) + "\n", encoding="utf8")

    def silver(*arguments, raw=raw, stdin=None):
        ran = run_tener("silver", *arguments, raw, "-o", tmp_path / "silver", "--part-size", 2, stdin=stdin)
        return ran.code, ran.text

    return silver


def test_command_writes_parts_and_resumes(run_silver, trained_path, tmp_path, monkeypatch):
    code, output = run_silver(trained_path)
    assert code == 0, output
    assert "3 texts, 4 entities" in output
    nlp = spacy.blank("zh")
    read = [example.reference for example in Corpus(tmp_path / "silver")(nlp)]
    assert [doc.text for doc in read] == [TEXT, "北京很大", "他去了上海"]
    assert [ent.text for ent in read[0].ents] == ["王小明", "上海"]
    (tmp_path / "silver" / "part-00001.spacy").unlink()
    batches = []
    annotated = silver_module.average_probabilities
    monkeypatch.setattr(
        silver_module,
        "average_probabilities",
        lambda teachers, texts: batches.append(texts) or annotated(teachers, texts),
    )
    assert run_silver(trained_path)[0] == 0
    assert batches == [["他去了上海"]]
    assert len(list(read_docs(tmp_path / "silver" / "part-00001.spacy"))) == 1


def test_multiline_records_keep_text_and_id(run_silver, save_rules, tmp_path):
    records = [{"text": f"姓名\t王小明\n籍贯\t上海\n{TEXT}", "id": 7}, {"text": "北京"}]
    (tmp_path / "forms.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf8")
    assert run_silver(save_rules(GPE="上海"), raw=tmp_path / "forms.jsonl")[0] == 0
    docs = list(read_docs(tmp_path / "silver" / "part-00000.spacy"))
    assert [(doc.text, doc.user_data) for doc in docs] == [(records[0]["text"], {"id": 7}), ("北京", {})]


def test_entities_keep_their_kb_ids(trained_path):
    nlp = spacy.load(trained_path)
    ruler = nlp.add_pipe("entity_ruler", config={"overwrite_ents": True})
    ruler.add_patterns([{"label": "GPE", "pattern": "上海", "id": "Q8686"}])
    Language.component("link", func=lambda doc: doc.set_ents([*_linked(doc)]) or doc)
    nlp.add_pipe("link")
    (doc,), _ = silver_module.silver([nlp], [{"text": TEXT}], SilverThresholds())
    assert [(ent.text, ent.kb_id_) for ent in doc.ents] == [("王小明", ""), ("上海", "Q8686")]


def _linked(doc):
    for ent in doc.ents:
        yield doc.char_span(ent.start_char, ent.end_char, ent.label_, kb_id="Q8686" if ent.text == "上海" else "")


def test_span_groups_of_teacher_are_removed(trained_path):
    nlp = spacy.load(trained_path)
    nlp.get_pipe("tener_ner").cfg["spans_key"] = "sc"
    nlp.add_pipe("sentencizer")
    (doc,), _ = silver_module.silver([nlp], [{"text": TEXT}], SilverThresholds())
    assert doc.ents
    assert not doc.spans


def test_resuming_with_changed_inputs_raises_error(run_silver, save_rules, tmp_path):
    """The settings, the code, the texts, or the teacher at the same path are changed."""
    teacher, code, raw = save_rules(GPE="上海"), tmp_path / "own.py", tmp_path / "raw.txt"
    code.write_text("a = 1\n")
    assert run_silver(teacher, "--code", code)[0] == 0

    def failed_output(*options):
        status, output = run_silver(teacher, "--code", code, *options)
        assert status == 1
        return output

    assert "entity: was 0.51, is 0.7" in failed_output("--entity-threshold", "0.7")
    assert json.loads((tmp_path / "silver" / "_manifest.json").read_text())["made_of"]["entity"] == 0.51
    code.write_text("a = 2\n")
    assert f"code: {code} changed" in failed_output()
    raw.write_text(f"{TEXT}\n", encoding="utf8")
    assert f"texts: {raw} changed" in failed_output()
    nlp = spacy.load(teacher)
    nlp.get_pipe("GPE").add_patterns([{"label": "GPE", "pattern": "北京"}])
    nlp.to_disk(teacher)
    assert f"teachers: {teacher} changed" in failed_output()


def test_standard_input_cannot_be_resumed(run_silver, trained_path, tmp_path):
    assert run_silver(trained_path, raw="-", stdin=f"{TEXT}\n")[0] == 0
    part = (tmp_path / "silver" / "part-00000.spacy").read_bytes()
    code, output = run_silver(trained_path, raw="-", stdin="北京很大\n")
    assert code == 1
    assert "standard input can be read only once and cannot be compared" in output
    assert (tmp_path / "silver" / "part-00000.spacy").read_bytes() == part


@pytest.mark.parametrize("content", [None, "", "\n \n"])
def test_empty_input_does_not_prevent_later_run(run_silver, trained_path, tmp_path, content):
    wrong = tmp_path / "wrong.txt"
    if content is not None:
        wrong.write_text(content, encoding="utf8")
    code, output = run_silver(trained_path, raw=wrong)
    assert code == 1
    assert f"{wrong}: " in output
    assert run_silver(trained_path)[0] == 0
