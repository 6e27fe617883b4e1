"""Knowledge distillation from a trained pipeline: loss, training on raw text, temperature and errors."""

from dataclasses import replace

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from test_loss import LENGTH, PATHS, path_scores, random_scores, target

from spacy_tener.crf.crf_torch import CRF
from spacy_tener.errors import UserError
from spacy_tener.pipeline.learning.distillation import load_teacher
from spacy_tener.pipeline.learning.learn_torch import distillation_loss
from spacy_tener.pipeline.tags import UNKNOWN
from spacy_tener.pipeline.units import view_of


@pytest.fixture
def crfs():
    layers = [CRF(2), CRF(2)]
    with torch.no_grad():
        for weight in (weight for layer in layers for weight in layer.parameters()):
            weight.normal_()
    return layers


def test_loss_equals_weighted_cross_entropy_over_sequences(crfs):
    student, teacher = crfs
    scores, soft = map(torch.from_numpy, random_scores(LENGTH, LENGTH))
    probabilities = path_scores(teacher, soft, PATHS).detach().softmax(0)
    expected = -(probabilities * path_scores(student, scores, PATHS).detach().log_softmax(0)).sum()
    for weights in ([1.0], [1.0, 1.0], [0.5], [2.0, 0.0], [0.25, 0.5]):
        targets = [replace(target([UNKNOWN] * LENGTH), weight=weight) for weight in weights]
        n = len(weights)
        loss = distillation_loss(student, teacher, torch.cat([scores] * n), [soft.numpy()] * n, targets)
        assert float(loss.detach()) == pytest.approx(sum(weights) * float(expected), rel=1e-4)


def test_gradient_is_proportional_to_text_weight(crfs):
    student, teacher = crfs
    scores, soft = random_scores(LENGTH, LENGTH)

    def gradient(weight):
        emissions = torch.from_numpy(scores.copy()).requires_grad_(True)
        part = replace(target([UNKNOWN] * LENGTH), weight=weight)
        distillation_loss(student, teacher, emissions, [soft], [part]).backward()
        return emissions.grad

    torch.testing.assert_close(gradient(0.5), 0.5 * gradient(1.0))
    assert not gradient(0.0).any()


@pytest.fixture
def teacher_path(learned, tmp_path):
    learned().to_disk(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.mark.parametrize(
    ("settings", "view", "existing_labels"),
    [({}, "tokens", []), ({}, "tokens", ["NEW", "PER"]), ({"segmenter": "jieba"}, "characters", [])],
    ids=["same units", "existing labels", "characters over words"],
)
def test_student_learns_teacher_entities_from_raw_text(
    settings, view, existing_labels, teacher_path, sentences, entities_of, tiny_model
):
    """The units of teacher and student are characters, whether these are tokens or not."""
    lang = spacy.util.get_lang_class("zh")
    nlp = lang.from_config({"nlp": {"tokenizer": settings}}) if settings else spacy.blank("zh")
    pipe = nlp.add_pipe("tener_ner", config={"model": tiny_model, "view": view})
    for label in existing_labels:
        pipe.add_label(label)
    raw = [Example(nlp.make_doc(text), nlp.make_doc(text)) for text, _ in sentences]
    nlp.config["initialize"]["components"]["tener_ner"] = {
        "teacher": {"@misc": "spacy_tener.Teacher.v1", "path": str(teacher_path), "weight": 0.9}
    }
    optimizer = nlp.initialize(lambda: raw)
    optimizer.learn_rate = 0.03
    teacher = spacy.load(teacher_path)
    labels = teacher.get_pipe("tener_ner").labels
    assert pipe.labels == (*labels, *(label for label in existing_labels if label not in labels))
    losses = [nlp.update(raw, sgd=optimizer)["tener_ner"] for _ in range(25)]
    assert losses[-1] < 0.3 * losses[0]
    for text, _ in sentences:
        expected = entities_of(teacher(text))
        assert [e for e in entities_of(nlp(text)) if e in expected] == expected
    again = spacy.blank("zh") if not settings else lang.from_config({"nlp": {"tokenizer": settings}})
    again.add_pipe("tener_ner", config={"model": tiny_model, "view": view})
    again.from_bytes(nlp.to_bytes())
    assert entities_of(again(sentences[0][0])) == entities_of(nlp(sentences[0][0]))


def test_loss_combines_annotation_and_soft_targets(teacher_path, learned, make_examples):
    """The loss is the weighted sum of both losses. Soft targets are computed once for each text."""
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    examples = make_examples(nlp)
    gold = pipe.update(examples)["tener_ner"]
    pipe._teacher = load_teacher(teacher_path, weight=1.0)
    soft = pipe.update(examples)["tener_ner"]
    pipe._teacher = teacher = load_teacher(teacher_path, weight=0.25)
    assert pipe.update(examples)["tener_ner"] == pytest.approx(0.75 * gold + 0.25 * soft, rel=1e-4)
    teacher.nlp = None
    assert pipe.update(examples)["tener_ner"] == pytest.approx(0.75 * gold + 0.25 * soft, rel=1e-4)


def test_temperature_divides_teacher_scores(teacher_path, sentences):
    docs = [spacy.blank("zh")(text) for text, _ in sentences]
    plain, warm = load_teacher(teacher_path), load_teacher(teacher_path, temperature=2.0)
    views = [view_of(doc, "tokens") for doc in docs]
    for cold, hot in zip(plain.soft_targets(views), warm.soft_targets(views), strict=True):
        assert hot == pytest.approx(cold / 2)
    assert warm.crf.start.detach().numpy() == pytest.approx(plain.crf.start.detach().numpy() / 2)


def test_soft_targets_ignore_max_length(teacher_path):
    teacher = load_teacher(teacher_path)
    teacher.nlp.max_length = 5
    [soft] = teacher.soft_targets([view_of(spacy.blank("zh")("王小明去了上海"), "tokens")])
    assert len(soft) == 7


def test_teacher_without_labels_raises_error(tmp_path):
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner")
    nlp.to_disk(tmp_path / "untrained")
    with pytest.raises(UserError, match=r"untrained has no labels\. Use a trained pipeline"):
        load_teacher(tmp_path / "untrained")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": None}, "path is not set"),
        ({"component": "ner"}, "has no tener_ner named 'ner'"),
    ],
)
def test_invalid_teacher_settings_raise_error(settings, message, teacher_path):
    with pytest.raises(UserError, match=message):
        load_teacher(**{"path": teacher_path, **settings})


def test_teacher_temperature_multiplies_calibrated_temperature(teacher_path, sentences):
    warm, calibrated = load_teacher(teacher_path, temperature=3.0), spacy.load(teacher_path)
    calibrated.get_pipe("tener_ner").cfg["temperature"] = 2.0
    calibrated.to_disk(teacher_path)
    multiplied = load_teacher(teacher_path, temperature=1.5)
    assert torch.allclose(multiplied.crf.start, warm.crf.start)
    views = [view_of(spacy.blank("zh")(text), "tokens") for text, _ in sentences]
    for found, expected in zip(multiplied.soft_targets(views), warm.soft_targets(views), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_teacher_with_different_tokenization_raises_error(teacher_path):
    words = spacy.util.get_lang_class("zh").from_config({"nlp": {"tokenizer": {"segmenter": "jieba"}}})
    with pytest.raises(UserError, match=r"tokenize a text differently: '王小明去了上海'\. Use the same tokenizer"):
        load_teacher(teacher_path).soft_targets([view_of(words("王小明去了上海"), "tokens")])
