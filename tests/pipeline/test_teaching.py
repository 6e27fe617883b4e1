"""A trained pipeline as a teacher: the loss against brute force, and students that learn from it without annotation."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
import spacy
import torch
from spacy.training import Example
from test_loss import LAYOUT, LENGTH, PATHS, random_scores, weights_of

from spacy_tener.errors import RemedyError
from spacy_tener.layers.crf import CRF
from spacy_tener.pipeline.learning.learn import teaching_loss
from spacy_tener.pipeline.learning.soft_targets import EmissionTarget, PathTarget
from spacy_tener.pipeline.learning.teaching import load_teacher
from spacy_tener.pipeline.units import OUTSIDE, Units, view_of
from spacy_tener.pipeline.windows import Window


@pytest.fixture
def crfs():
    made = [CRF(2), CRF(2)]
    with torch.no_grad():
        for weight in (weight for layer in made for weight in layer.parameters()):
            weight.normal_()
    return made


def units(length):
    nothing = np.zeros(length, dtype=bool)
    return Units(nothing, np.full(length, OUTSIDE), np.zeros(length, dtype=np.uint64), nothing)


def test_the_loss_is_the_cross_entropy_of_all_readings(crfs):
    student, teacher = crfs
    own, said = map(torch.from_numpy, random_scores(LENGTH, LENGTH))
    wanted = weights_of(teacher, said, PATHS).detach().softmax(0)
    expected = -(wanted * weights_of(student, own, PATHS).detach().log_softmax(0)).sum()
    soft = EmissionTarget(said.numpy())
    assert float(teaching_loss(student, teacher, own, [soft], [units(LENGTH)]).detach()) == pytest.approx(
        float(expected), rel=1e-4
    )
    every = PathTarget(PATHS, wanted.numpy(), LAYOUT)
    both = teaching_loss(student, teacher, torch.cat([own, own]), [every, soft], [units(LENGTH)] * 2)
    assert float(both.detach()) == pytest.approx(2 * float(expected), rel=1e-4)


def test_the_gradient_of_listed_readings_is_that_of_their_log_probability(crfs):
    student, teacher = crfs
    [scores] = random_scores(LENGTH)
    chosen, weights = PATHS[[3, 77]], np.array([0.7, 0.3])
    emissions = torch.from_numpy(scores).requires_grad_(True)
    teaching_loss(student, teacher, emissions, [PathTarget(chosen, weights, LAYOUT)], [units(LENGTH)]).backward()
    expected = torch.zeros_like(emissions)
    for path, weight in zip(chosen, weights, strict=True):
        loss = weight * student.loss(emissions, [LENGTH], tags=torch.from_numpy(path)).sum()
        expected += torch.autograd.grad(loss, emissions)[0]
    assert emissions.grad.numpy() == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_window_holds_what_is_inside_of_a_cut_entity():
    names = LAYOUT.names(("X", "Y"))
    path = np.array([[names.index(tag) for tag in ("B-X", "I-X", "E-X", "O", "S-Y")]])
    part = PathTarget(path, np.ones(1), LAYOUT).within(Window(1, 4, 1, 4))
    assert [names[tag] for tag in part.tags[0]] == ["B-X", "E-X", "O"]


@pytest.fixture
def teacher_path(learned, tmp_path):
    learned().to_disk(tmp_path / "teacher")
    return tmp_path / "teacher"


@pytest.mark.parametrize(
    ("settings", "view", "had"),
    [
        ({}, "tokens", []),
        ({}, "tokens", ["NEW", "PER"]),
        ({"segmenter": "jieba"}, "tokens", []),
        ({"segmenter": "jieba"}, "characters", []),
    ],
    ids=["same units", "other labels before", "words", "characters over words"],
)
def test_a_student_learns_from_raw_text_what_its_teacher_knows(
    settings, view, had, teacher_path, sentences, entities_of, tiny_model
):
    """The teacher reads characters; the student reads characters, or words."""
    lang = spacy.util.get_lang_class("zh")
    nlp = lang.from_config({"nlp": {"tokenizer": settings}}) if settings else spacy.blank("zh")
    pipe = nlp.add_pipe("tener_ner", config={"model": tiny_model, "view": view})
    for label in had:
        pipe.add_label(label)
    raw = [Example(nlp.make_doc(text), nlp.make_doc(text)) for text, _ in sentences]
    nlp.config["initialize"]["components"]["tener_ner"] = {
        "teacher": {"@misc": "spacy_tener.Teacher.v1", "path": str(teacher_path), "share": 0.9}
    }
    optimizer = nlp.initialize(lambda: raw)
    optimizer.learn_rate = 0.01
    teacher = spacy.load(teacher_path)
    labels = teacher.get_pipe("tener_ner").labels
    assert pipe.labels == (*labels, *(label for label in had if label not in labels))
    losses = [nlp.update(raw, sgd=optimizer)["tener_ner"] for _ in range(60)]
    assert losses[-1] < 0.3 * losses[0]
    for text, _ in sentences:
        found = entities_of(nlp(text))
        known = [e for e in entities_of(teacher(text)) if nlp.make_doc(text).char_span(*e[:2]) is not None]
        assert [e for e in found if e in known] == known
    again = spacy.blank("zh") if not settings else lang.from_config({"nlp": {"tokenizer": settings}})
    again.add_pipe("tener_ner", config={"model": tiny_model, "view": view})
    again.from_bytes(nlp.to_bytes())
    assert entities_of(again(sentences[0][0])) == entities_of(nlp(sentences[0][0]))


def test_annotation_is_learned_beside_the_teacher(teacher_path, learned, make_examples):
    """The loss is that of both, by their shares; the teacher is asked once for each text."""
    nlp = learned()
    pipe = nlp.get_pipe("tener_ner")
    examples = make_examples(nlp)
    gold = pipe.update(examples)["tener_ner"]
    pipe._teacher = load_teacher(teacher_path, share=1.0)
    taught = pipe.update(examples)["tener_ner"]
    pipe._teacher = teacher = load_teacher(teacher_path, share=0.25)
    assert pipe.update(examples)["tener_ner"] == pytest.approx(0.75 * gold + 0.25 * taught, rel=1e-4)
    teacher.nlp = None
    assert pipe.update(examples)["tener_ner"] == pytest.approx(0.75 * gold + 0.25 * taught, rel=1e-4)


def test_temperature_divides_the_scores_of_the_teacher(teacher_path, sentences, learned):
    view = learned().get_pipe("tener_ner")
    docs = [spacy.blank("zh")(text) for text, _ in sentences]
    plain, warm = load_teacher(teacher_path), load_teacher(teacher_path, temperature=2.0)
    views = [view_of(doc, "tokens") for doc in docs]
    for cold, hot in zip(plain.soft_targets(views, view.labels), warm.soft_targets(views, view.labels), strict=True):
        assert hot.scores == pytest.approx(cold.scores / 2)
    assert warm.crf.start.detach().numpy() == pytest.approx(plain.crf.start.detach().numpy() / 2)


def test_temperature_flattens_the_shares_of_readings_of_a_text_of_any_length(teacher_path):
    """Over units that are not the teacher's."""
    doubtful = "北天王海好" * 2400
    teacher = load_teacher(teacher_path)
    assert teacher.pipe.k_best([teacher.nlp.tokenizer(doubtful)], 1)[0][0].probability == 0.0
    words = spacy.util.get_lang_class("zh").from_config({"nlp": {"tokenizer": {"segmenter": "jieba"}}})
    for text in ("王小明去了上海", doubtful):
        plain, warm = (load_teacher(teacher_path, temperature=each) for each in (1.0, 2.0))
        view = view_of(words(text), "tokens")
        [cold], [hot] = (teacher.soft_targets([view], teacher.pipe.labels) for teacher in (plain, warm))
        assert cold.weights.sum() == pytest.approx(1.0)
        assert hot.weights == pytest.approx(np.sqrt(cold.weights) / np.sqrt(cold.weights).sum())


def test_a_text_longer_than_spacy_lets_through_is_taught(teacher_path):
    teacher = load_teacher(teacher_path)
    teacher.nlp.max_length = 5
    [soft] = teacher.soft_targets([view_of(spacy.blank("zh")("王小明去了上海"), "tokens")], teacher.pipe.labels)
    assert len(soft.scores) == 7


def test_a_teacher_without_labels_is_refused(tmp_path):
    nlp = spacy.blank("zh")
    nlp.add_pipe("tener_ner")
    nlp.to_disk(tmp_path / "untrained")
    with pytest.raises(RemedyError, match=r"untrained has no labels\. Use a trained pipeline"):
        load_teacher(tmp_path / "untrained")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"share": 0.0}, "share is 0.0"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"k_best": 0}, "k_best is 0"),
        ({"path": None}, "path is not set"),
        ({"component": "ner"}, "has no tener_ner named 'ner'"),
    ],
)
def test_what_cannot_teach_is_refused(settings, message, teacher_path):
    with pytest.raises(RemedyError, match=message):
        load_teacher(**{"path": teacher_path, **settings})


def soft_targets_of(teacher, sentences, labels):
    """Over characters, as this teacher reads them, and over words, which it does not."""
    words = spacy.util.get_lang_class("zh").from_config({"nlp": {"tokenizer": {"segmenter": "jieba"}}})
    docs = [make(text) for text, _ in sentences for make in (spacy.blank("zh"), words)]
    return teacher.soft_targets([view_of(doc, "tokens") for doc in docs], labels)


def test_what_a_teacher_said_is_kept_for_other_trainings(teacher_path, sentences, tmp_path):
    """The same, without asking; but not what another teacher said, or the same one with other settings."""
    path, labels = tmp_path / "new" / "teacher.sqlite", spacy.load(teacher_path).get_pipe("tener_ner").labels
    told = soft_targets_of(load_teacher(teacher_path, cache_file=path), sentences, labels)
    again = load_teacher(teacher_path, cache_file=path, cache_mb=0)
    again._predict = None
    assert {type(soft) for soft in told} == {EmissionTarget, PathTarget}
    for before, after in zip(told, soft_targets_of(again, sentences, labels), strict=True):
        if isinstance(before, EmissionTarget):
            assert np.array_equal(before.scores, after.scores)
        else:
            assert np.array_equal(before.tags, after.tags)
            assert np.array_equal(before.weights, after.weights)
    warm = load_teacher(teacher_path, cache_file=path, temperature=2.0)
    assert soft_targets_of(warm, sentences, labels)[0].scores == pytest.approx(told[0].scores / 2)
    nlp = spacy.load(teacher_path)
    nlp.get_pipe("tener_ner").add_label("NEW")
    nlp.to_disk(teacher_path)
    asked = load_teacher(teacher_path, cache_file=path)
    asked._predict = None
    with pytest.raises(TypeError):
        soft_targets_of(asked, sentences, labels)


def test_a_calibrated_teacher_teaches_at_its_temperature_whatever_the_units(teacher_path, sentences):
    warm, calibrated = load_teacher(teacher_path, temperature=3.0), spacy.load(teacher_path)
    labels = warm.pipe.labels
    calibrated.get_pipe("tener_ner").cfg["temperature"] = 2.0
    calibrated.to_disk(teacher_path)
    both = load_teacher(teacher_path, temperature=1.5)
    assert torch.allclose(both.crf.start, warm.crf.start)
    for one, other in zip(*(soft_targets_of(teacher, sentences, labels) for teacher in (warm, both)), strict=True):
        if isinstance(one, EmissionTarget):
            np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5)
        else:
            np.testing.assert_allclose(one.weights, other.weights, rtol=1e-5)


def test_a_damaged_soft_target_is_told(teacher_path, sentences, tmp_path):
    path, labels = tmp_path / "teacher.sqlite", spacy.load(teacher_path).get_pipe("tener_ner").labels
    soft_targets_of(load_teacher(teacher_path, cache_file=path), sentences, labels)
    with closing(sqlite3.connect(path)) as file, file:
        (width,) = file.execute("SELECT max(length(rows)) FROM soft_targets WHERE weights IS NULL").fetchone()
        step = 4 * (4 * len(labels) + 1)
        assert width % step == 0
        file.execute(f"UPDATE soft_targets SET rows = substr(rows, 1, length(rows) - {step}) WHERE weights IS NULL")
    with pytest.raises(RemedyError, match=r"cannot use cache_file .*teacher\.sqlite: cannot reshape"):
        soft_targets_of(load_teacher(teacher_path, cache_file=path), sentences, labels)


def test_a_file_that_is_no_database_is_refused(teacher_path, sentences, tmp_path):
    path = tmp_path / "teacher.sqlite"
    path.write_text("not a database\n" * 100)
    teacher = load_teacher(teacher_path, cache_file=path)
    with pytest.raises(RemedyError, match=r"cannot use cache_file .*teacher\.sqlite: file is not a database"):
        soft_targets_of(teacher, sentences, teacher.pipe.labels)
    assert path.read_text() == "not a database\n" * 100
