"""Extend trained pipelines by new labels: the losses compared with brute force, and the result of training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import spacy
import torch
from crf_brute_force import all_paths, path_score
from spacy.training import Example

from spacy_tener.architectures.tagger import torch_crf
from spacy_tener.crf.crf_torch import CRF
from spacy_tener.errors import UserError
from spacy_tener.pipeline.learning.distillation import load_teacher
from spacy_tener.pipeline.learning.learn_torch import batch_loss, completion_loss
from spacy_tener.pipeline.learning.targets import ANNOTATED_LABELS, IncorrectSpan, make_targets
from spacy_tener.pipeline.windows import Window
from spacy_tener.tagging import TagLayout

LENGTH = 4
OLD, BOTH = TagLayout(1), TagLayout(2)
# Units 1 and 2 are an entity with the second label.
NEW_ENTITY = {1: BOTH.begin.start + 1, 2: BOTH.end.start + 1}


def random_crf(n_labels):
    layer = CRF(n_labels)
    with torch.no_grad():
        for weight in layer.parameters():
            weight.normal_()
    return layer


def scores_of(crf, emissions, paths):
    repeated = emissions.repeat(len(paths), 1)
    return path_score(crf, repeated, [LENGTH] * len(paths), torch.from_numpy(paths.ravel())).detach().double()


@pytest.fixture
def make_partial_target(blank):
    """Return a function that creates the target of a text that is annotated for some labels only."""

    def make(*annotated, text="甲乙丙丁", entities=((1, 3, "NEW"),)):
        nlp = blank()
        pipe = nlp.get_pipe("tener_ner")
        for label in ("OLD", "NEW"):
            pipe.add_label(label)
        example = Example.from_dict(nlp.make_doc(text), {"entities": list(entities)})
        if annotated:
            example.reference.user_data[ANNOTATED_LABELS] = list(annotated)
        [[target]] = make_targets([example], pipe.label_index, pipe.settings)
        return target

    return make


def test_loss_with_unannotated_labels_equals_brute_force(make_partial_target):
    student, emissions = random_crf(2), torch.randn(LENGTH, BOTH.n_tags)
    paths = all_paths(BOTH, LENGTH)
    new_tags = [block.start + 1 for block in (BOTH.begin, BOTH.single, BOTH.end, BOTH.inside)]
    agrees = (paths[:, list(NEW_ENTITY)] == list(NEW_ENTITY.values())).all(axis=1)
    agrees &= ~np.isin(paths[:, [0, 3]], new_tags).any(axis=1)
    scores = scores_of(student, emissions, paths)
    expected = scores.logsumexp(0) - scores[torch.from_numpy(agrees)].logsumexp(0)
    loss = batch_loss(student, emissions, [make_partial_target("NEW")])
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)


def test_completion_loss_equals_brute_force(make_partial_target):
    """The teacher was not trained on the new label, so its label sequences are O at the new entity."""
    student, teacher = random_crf(2), random_crf(1)
    emissions, teacher_emissions = torch.randn(LENGTH, BOTH.n_tags), torch.randn(LENGTH, OLD.n_tags)
    teacher_paths = all_paths(OLD, LENGTH)
    teacher_paths = teacher_paths[(teacher_paths[:, list(NEW_ENTITY)] == OLD.outside).all(axis=1)]
    probabilities = scores_of(teacher, teacher_emissions, teacher_paths).softmax(0)
    completed_paths = OLD.within(BOTH)[teacher_paths]
    completed_paths[:, list(NEW_ENTITY)] = list(NEW_ENTITY.values())
    log_total = scores_of(student, emissions, all_paths(BOTH, LENGTH)).logsumexp(0)
    expected = log_total - (probabilities * scores_of(student, emissions, completed_paths)).sum()
    partial = make_partial_target("NEW")
    loss = completion_loss(student, teacher, emissions, [teacher_emissions.numpy()], [partial])
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
    complete = make_partial_target()
    gold = float(batch_loss(student, emissions, [complete]).detach())
    total = completion_loss(
        student, teacher, torch.cat([emissions] * 2), [teacher_emissions.numpy()] * 2, [partial, complete]
    )
    assert float(total.detach()) == pytest.approx(float(expected) + gold, rel=1e-4)
    for weight in (0.5, 0.0):
        loss = completion_loss(
            student, teacher, emissions, [teacher_emissions.numpy()], [replace(partial, weight=weight)]
        )
        assert float(loss.detach()) == pytest.approx(weight * float(expected), rel=1e-4)


def test_loss_of_a_nested_model_is_the_sum_over_its_depths(make_partial_target):
    student, teacher = random_crf(2), random_crf(1)
    texts = [make_partial_target("NEW"), make_partial_target()]
    emissions = torch.randn(2 * LENGTH, 2 * BOTH.n_tags)
    soft = [torch.randn(LENGTH, 2 * OLD.n_tags).numpy() for _ in texts]
    expected = 0.0
    for depth in range(2):
        columns, soft_columns = (slice(depth * n, (depth + 1) * n) for n in (BOTH.n_tags, OLD.n_tags))
        loss = completion_loss(student, teacher, emissions[:, columns], [part[:, soft_columns] for part in soft], texts)
        expected += float(loss.detach())
    loss = completion_loss(student, teacher, emissions, soft, texts * 2)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)


def test_completion_loss_includes_negative_examples(make_partial_target):
    """The first unit is not an entity of the old label."""
    student, teacher = random_crf(2), random_crf(1)
    emissions, soft = torch.randn(LENGTH, BOTH.n_tags), torch.randn(LENGTH, OLD.n_tags).numpy()
    partial = make_partial_target("NEW")
    paths = all_paths(BOTH, LENGTH)
    new_tags = [block.start + 1 for block in (BOTH.begin, BOTH.single, BOTH.end, BOTH.inside)]
    agrees = (paths[:, list(NEW_ENTITY)] == list(NEW_ENTITY.values())).all(axis=1)
    agrees &= ~np.isin(paths[:, [0, 3]], new_tags).any(axis=1)
    paths = paths[agrees]
    probabilities = scores_of(student, emissions, paths).softmax(0)
    probability = float(probabilities[torch.from_numpy(paths[:, 0] == BOTH.single.start)].sum())
    without = completion_loss(student, teacher, emissions, [soft], [partial])
    with_span = replace(partial, incorrect=[IncorrectSpan(0, 1, 0)])
    for weight in (1.0, 0.5):
        loss = completion_loss(student, teacher, emissions, [soft], [replace(with_span, weight=weight)])
        expected = weight * (float(without.detach()) - np.log1p(-probability))
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)


def test_fully_annotated_text_has_no_unannotated_labels(make_partial_target):
    assert make_partial_target("OLD", "NEW").unannotated_labels is None
    assert make_partial_target("NEW").unannotated_labels.tolist() == [True, False]
    with pytest.raises(
        ValueError, match=r"user_data\['spacy_tener.labels'\] must be a list of labels, but is \['a', 1\]"
    ):
        make_partial_target("a", 1)


def test_windows_partition_open_units(make_partial_target):
    target = make_partial_target("NEW", text="甲乙丙丁戊己", entities=((2, 4, "NEW"),))
    parts = [target.in_window(window) for window in (Window(0, 4, 0, 3), Window(2, 6, 3, 6))]
    # The entity starts in the kept part of the first window, so the second window allows all tags at its end.
    assert [partial.open_units.tolist() for partial in parts] == [
        [True, True, False, False],
        [False, False, True, True],
    ]
    assert parts[1].agreeing(BOTH)[:2].all()


def test_extended_component_learns_label_and_keeps_old_labels(learned, tmp_path, entities_of):
    learned().to_disk(tmp_path / "before")
    before, nlp = spacy.load(tmp_path / "before"), spacy.load(tmp_path / "before")
    pipe = nlp.get_pipe("tener_ner")
    text = "王小明去了上海"
    old = entities_of(before(text))
    assert old
    doc = nlp.make_doc(text)
    reference = nlp.make_doc(text)
    reference.set_ents([reference.char_span(3, 5, "VERB")], default="outside")
    reference.user_data[ANNOTATED_LABELS] = ["VERB"]
    pipe.extend(["VERB"], load_teacher(tmp_path / "before", only_missing_labels=True), {old[0][2]: "NAME"})
    optimizer = nlp.resume_training()
    for _ in range(60):
        nlp.update([Example(doc, reference)], sgd=optimizer)
    names = [(start, end, label.replace(old[0][2], "NAME")) for start, end, label in old]
    assert entities_of(nlp(text)) == sorted([*names, (3, 5, "VERB")])


def test_temperature_is_not_applied_twice_when_labels_are_added(learned, tmp_path):
    """The extended component keeps its temperature, so its teacher must not divide by the same temperature."""
    nlp = learned()
    nlp.get_pipe("tener_ner").cfg["temperature"] = 3.0
    nlp.to_disk(tmp_path / "calibrated")
    nlp = spacy.load(tmp_path / "calibrated")
    pipe, teacher = nlp.get_pipe("tener_ner"), load_teacher(tmp_path / "calibrated", only_missing_labels=True)
    (decoding,) = pipe.decode([nlp.make_doc("王小明去了上海")])
    pipe.extend(["NEW"], teacher)
    (scores,) = teacher.soft_targets([decoding.view])
    np.testing.assert_allclose(scores, decoding.emissions, rtol=1e-5, atol=1e-5)
    for weight, original in zip(teacher.crf.parameters(), torch_crf(teacher.model).parameters(), strict=True):
        torch.testing.assert_close(weight, original)


def test_renamed_label_keeps_settings(learned):
    pipe = learned().get_pipe("tener_ner")
    label, *others = pipe.labels
    pipe.cfg |= {"threshold": {label: 0.5}, "latin_edges": {label: [9, 1]}, "labels_over_lines": [label]}
    before = pipe.label_index
    pipe.extend([], rename={label: "NAME"})
    assert pipe.labels == ("NAME", *others)
    assert (pipe.cfg["threshold"], pipe.cfg["latin_edges"]) == ({"NAME": 0.5}, {"NAME": [9, 1]})
    assert (pipe.label_index.tags_by_unit_type == before.tags_by_unit_type).all()


def test_invalid_renames_raise_errors(learned):
    pipe = learned().get_pipe("tener_ner")
    first, second = pipe.labels[:2]
    with pytest.raises(UserError, match=r"Unknown label '.*' in `rename`"):
        pipe.extend([], rename={"NONE": "A"})
    with pytest.raises(UserError, match="Two labels of 'tener_ner' would have the same name"):
        pipe.extend([], rename={first: second})
