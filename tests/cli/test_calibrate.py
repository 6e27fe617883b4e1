"""Test the command `calibrate`: temperature, thresholds, output and errors."""

import json
import re

import pytest
import spacy
from command_line import run_tener
from small_corpora import save_corpus, save_docs
from spacy.training import Example

from spacy_tener.corpora.docs import read_docs
from spacy_tener.corpora.folds import assign_folds

TEXT, OFFSETS = "王小明去了上海", [(0, 3), (5, 7)]
MODELS: dict[str, bytes] = {}


@pytest.fixture
def model(train, tmp_path):
    if "bytes" not in MODELS:
        MODELS["bytes"] = train(steps=40).to_bytes()
    nlp = train(steps=0).from_bytes(MODELS["bytes"])
    nlp.to_disk(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def data(tmp_path):
    """Return a function that writes a corpus in which some entities that the model predicts are not annotated."""

    def write(name="dev", *, count=60, every=3, labels=("PER", "GPE")):
        texts = []
        for number in range(count):
            missing_entity = None if number % every else number // every % 2
            entities = [(*OFFSETS[i], label) for i, label in enumerate(labels) if i != missing_entity]
            texts.append((TEXT, entities))
        return save_corpus(tmp_path / f"{name}.spacy", texts)

    return write


def calibrate(*arguments):
    ran = run_tener("calibrate", *arguments)
    return ran.code, ran.text


def files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cfg_of(model):
    return json.loads((model / "tener_ner/cfg").read_text(encoding="utf8"))


def test_temperature_is_saved_and_calibration_error_reported(model, data, tmp_path):
    before = files(model)
    code, output = calibrate(model, data(), "-o", model, "--force", "--test", data("test"))
    assert code == 0, output
    assert "120 entities predicted, 100 correct" in output
    assert "The temperature is uncertain, because only 100 predictions are correct and 20 are wrong" in output
    worse, better = re.search(r"before ([\d. ]+) after ([\d. ]+)", output).groups()
    assert float(better.split()[0]) < float(worse.split()[0])
    after = files(model)
    assert {str(path) for path in after if after[path] != before.get(path)} == {"tener_ner/cfg", "vocab/strings.json"}
    nlp = spacy.load(model)
    pipe = nlp.get_pipe("tener_ner")
    assert pipe.cfg["temperature"] > 1.0
    assert [(ent.text, ent.label_) for ent in nlp(TEXT).ents] == [("王小明", "PER"), ("上海", "GPE")]
    again = calibrate(model, data(), "--output", tmp_path / "again", "--test", data("test"))[1]
    assert f"before {better}after" in again
    # Five of six predicted entities are correct.
    (decoding,) = pipe.decode([nlp(TEXT)])
    assert [entity.probability for entity in decoding.entities] == pytest.approx([5 / 6] * 2, abs=0.17)


def test_calibration_removes_existing_threshold(model, data):
    path = model / "tener_ner/cfg"
    path.write_text(json.dumps({**cfg_of(model), "threshold": 0.99}), encoding="utf8")
    code, output = calibrate(model, data(), "-o", model, "--force")
    assert code == 0, output
    assert "The existing thresholds were removed" in output
    assert cfg_of(model)["threshold"] == 0.0
    assert len(spacy.load(model)(TEXT).ents) == 2


def test_output_directory_gets_calibrated_copy(model, data, tmp_path):
    before, new = files(model), tmp_path / "of" / "mine" / "model"
    code, output = calibrate(model, data(), "--output", new)
    assert code == 0, output
    assert files(model) == before
    assert "temperature" in cfg_of(new)
    assert len(spacy.load(new)(TEXT).ents) == 2
    assert [path.name for path in new.parent.iterdir()] == ["model"]
    code, output = calibrate(model, data(), "--output", new)
    assert code == 1
    assert "exists already" in output


def test_thresholds_ensure_requested_precision(model, data):
    code, output = calibrate(model, data(), "-o", model, "--force", "--precision", 0.7, "--test", data("test"))
    assert code == 0, output
    assert "On the test set: 120 of 120 predicted entities are above the threshold, with precision 0.833" in output
    assert set(cfg_of(model)["threshold"]) == {"GPE", "ORG", "PER"}
    assert all(0.0 < value < 1.0 for value in cfg_of(model)["threshold"].values())
    assert len(spacy.load(model)(TEXT).ents) == 2


def test_unreachable_precision_leaves_model_unchanged(model, data):
    before = files(model)
    code, output = calibrate(model, data(), "-o", model, "--force", "--precision", 0.99)
    assert code == 1
    assert "are not enough to ensure --precision" in output
    assert files(model) == before


def test_label_below_precision_loses_existing_threshold(model, tmp_path):
    person, place = (0, 3, "PER"), (5, 7, "GPE")
    texts = [(TEXT, [person] * (number % 20 != 0) + [place] * (number % 3 == 0)) for number in range(240)]
    save_corpus(tmp_path / "dev.spacy", texts)
    path = model / "tener_ner/cfg"
    path.write_text(json.dumps({**cfg_of(model), "threshold": {"GPE": 0.25}}), encoding="utf8")
    code, output = calibrate(model, tmp_path / "dev.spacy", "-o", model, "--force", "--precision", 0.8)
    assert code == 0, output
    assert "No threshold ensures a precision of 0.8 for these labels: GPE" in output
    found = cfg_of(model)["threshold"]
    assert found["GPE"] == 0.0
    assert 0.0 < found["PER"] < 1.0
    assert len(spacy.load(model)(TEXT).ents) == 2


def test_cross_validation_requires_multiple_texts(model, tmp_path):
    entities = [(7 * i, 7 * i + 3, "PER") for i in range(40) if i % 2]
    save_corpus(tmp_path / "one.spacy", [(TEXT * 40, entities)])
    code, output = calibrate(model, tmp_path / "one.spacy", "-o", model, "--force")
    assert (code, "Cross-validation needs more than one text" in output) == (1, True), output
    code, output = calibrate(model, tmp_path / "one.spacy", "-o", model, "--force", "--test", tmp_path / "one.spacy")
    assert code == 0, output


def test_write_error_leaves_model_unchanged(model, data, monkeypatch):
    before = files(model)
    monkeypatch.setattr("spacy.Language.to_disk", lambda *_: (_ for _ in ()).throw(OSError(28, "No space")))
    code, output = calibrate(model, data(), "-o", model, "--force")
    assert code == 1
    assert "cannot be written" in output
    assert files(model) == before


def test_unsuitable_corpus_leaves_model_unchanged(model, data, tmp_path):
    before = files(model)
    for arguments, message in (
        ([data("bare", labels=())], "no entities are annotated"),
        ([data("other", labels=("X", "Y"))], "none of the annotated labels (X, Y) is a label of"),
        ([data("few", count=4)], "too few predicted entities to fit"),
    ):
        code, output = calibrate(model, *arguments, "-o", model, "--force")
        assert (code, message in output) == (1, True), output
        assert files(model) == before


# Calibration on the folds of a review


@pytest.fixture
def folds(model, tmp_path):
    """Write a corpus and two pipelines, as a review that divided the corpus into two folds."""
    texts = [
        (TEXT + "。" * (number % 6), [(*offsets, label) for offsets, label in zip(OFFSETS, labels, strict=True)])
        for number in range(60)
        for labels in [("PER", "PER") if number % 4 == 0 else ("PER", "GPE")]
    ]
    corpus = save_corpus(tmp_path / "train.spacy", texts)
    docs = list(read_docs(corpus))
    for fold in range(2):
        folder = tmp_path / "review" / "folds" / str(fold + 1)
        outside = [doc for doc, of_doc in zip(docs, assign_folds(docs, 2), strict=True) if of_doc != fold]
        save_docs(folder / "train.spacy", *outside)
        nlp = spacy.load(model)
        if fold:
            # The pipelines differ, so that the test fails if one of them predicts all texts.
            nlp.get_pipe("tener_ner").cfg["temperature"] = 5.0
        nlp.to_disk(folder / "model-best")
    return corpus


def test_folds_calibrate_pipeline_on_its_training_texts(model, folds, tmp_path):
    code, output = calibrate(model, folds, "--folds", tmp_path / "review", "-o", tmp_path / "new")
    assert code == 0, output
    assert "120 entities predicted, 105 correct" in output
    assert "train.spacy, cross-validated" in output
    assert cfg_of(tmp_path / "new")["temperature"] != 1.0
    same = calibrate(model, folds, "-o", tmp_path / "same")[1]
    # Both folds have the weights of the pipeline, so their predictions are those of the pipeline.
    assert re.search(r"Temperature [\d.]+", same)[0] == re.search(r"Temperature [\d.]+", output)[0]


def test_folds_of_other_corpus_raise_error(model, folds, data, tmp_path):
    code, output = calibrate(model, data(), "--folds", tmp_path / "review", "-o", tmp_path / "new")
    assert code == 1
    assert "cannot be divided into 2 folds" in output
    texts = [(f"李雷{number}去了北京", [(0, 2, "PER")]) for number in range(6)]
    other = save_corpus(tmp_path / "other.spacy", texts)
    code, output = calibrate(model, other, "--folds", tmp_path / "review", "-o", tmp_path / "new")
    assert code == 1
    assert "the training texts of this pipeline do not match the folds of" in output
    assert not (tmp_path / "new").exists()


def test_directory_without_folds_raises_error(model, folds, tmp_path):
    code, output = calibrate(model, folds, "--folds", tmp_path, "-o", tmp_path / "new")
    assert code == 1
    assert "contains no pipelines of cross-validation folds" in output
    assert "tener review CONFIG" in output


def test_folds_with_unknown_labels_raise_error(folds, tmp_path):
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner").add_label("PER")
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc(TEXT), {"entities": [(0, 3, "PER")]})])
    nlp.to_disk(tmp_path / "one")
    code, output = calibrate(tmp_path / "one", folds, "--folds", tmp_path / "review", "-o", tmp_path / "new")
    assert code == 1
    assert "have labels that 'tener_ner' does not have: GPE" in output
