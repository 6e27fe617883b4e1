"""New labels beside those that a trained pipeline keeps: the loss against brute force, and what is learned."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import spacy
import torch
from crf_brute_force import all_paths, path_score
from spacy.training import Example

from spacy_tener.crf.crf_torch import CRF
from spacy_tener.errors import RemedyError
from spacy_tener.pipeline.learning.distillation import load_teacher
from spacy_tener.pipeline.learning.learn_torch import batch_loss, completion_loss
from spacy_tener.pipeline.learning.targets import ANNOTATED_LABELS, IncorrectSpan, make_targets
from spacy_tener.pipeline.windows import Window
from spacy_tener.tagging import TagLayout

LENGTH = 4
OLD, BOTH = TagLayout(1), TagLayout(2)
NEW_ENTITY = {1: BOTH.begin.start + 1, 2: BOTH.end.start + 1}
"""Units 1 and 2 are an entity of the second label."""


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
def partly(blank):
    """Return the target of a text whose annotation is of some labels only."""

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


def test_open_labels_may_be_anywhere_and_the_others_only_where_they_are_annotated(partly):
    student, emissions = random_crf(2), torch.randn(LENGTH, BOTH.n_tags)
    paths = all_paths(BOTH, LENGTH)
    of_new = [block.start + 1 for block in (BOTH.begin, BOTH.single, BOTH.end, BOTH.inside)]
    agrees = (paths[:, list(NEW_ENTITY)] == list(NEW_ENTITY.values())).all(axis=1)
    agrees &= ~np.isin(paths[:, [0, 3]], of_new).any(axis=1)
    scores = scores_of(student, emissions, paths)
    expected = scores.logsumexp(0) - scores[torch.from_numpy(agrees)].logsumexp(0)
    loss = batch_loss(student, emissions, [partly("NEW")])
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)


def test_a_teacher_completes_annotation_by_its_distribution_under_it(partly):
    """To the teacher an entity of a label that it lacks is no entity."""
    student, teacher = random_crf(2), random_crf(1)
    emissions, taught = torch.randn(LENGTH, BOTH.n_tags), torch.randn(LENGTH, OLD.n_tags)
    of_teacher = all_paths(OLD, LENGTH)
    of_teacher = of_teacher[(of_teacher[:, list(NEW_ENTITY)] == OLD.outside).all(axis=1)]
    share = scores_of(teacher, taught, of_teacher).softmax(0)
    completed = OLD.within(BOTH)[of_teacher]
    completed[:, list(NEW_ENTITY)] = list(NEW_ENTITY.values())
    log_total = scores_of(student, emissions, all_paths(BOTH, LENGTH)).logsumexp(0)
    expected = log_total - (share * scores_of(student, emissions, completed)).sum()
    part = partly("NEW")
    loss = completion_loss(student, teacher, emissions, [taught.numpy()], [part])
    assert float(loss.detach()) == pytest.approx(float(expected), rel=1e-4)
    full = partly()
    gold = float(batch_loss(student, emissions, [full]).detach())
    both = completion_loss(student, teacher, torch.cat([emissions] * 2), [taught.numpy()] * 2, [part, full])
    assert float(both.detach()) == pytest.approx(float(expected) + gold, rel=1e-4)
    for weight in (0.5, 0.0):
        loss = completion_loss(student, teacher, emissions, [taught.numpy()], [replace(part, weight=weight)])
        assert float(loss.detach()) == pytest.approx(weight * float(expected), rel=1e-4)


def test_loss_of_a_nested_model_is_the_sum_over_its_depths(partly):
    student, teacher = random_crf(2), random_crf(1)
    texts = [partly("NEW"), partly()]
    emissions = torch.randn(2 * LENGTH, 2 * BOTH.n_tags)
    soft = [torch.randn(LENGTH, 2 * OLD.n_tags).numpy() for _ in texts]
    expected = 0.0
    for depth in range(2):
        columns, soft_columns = (slice(depth * n, (depth + 1) * n) for n in (BOTH.n_tags, OLD.n_tags))
        loss = completion_loss(student, teacher, emissions[:, columns], [part[:, soft_columns] for part in soft], texts)
        expected += float(loss.detach())
    loss = completion_loss(student, teacher, emissions, soft, texts * 2)
    assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)


def test_negative_examples_count_where_a_teacher_completes_the_annotation(partly):
    """The first unit is not an entity of the old label."""
    student, teacher = random_crf(2), random_crf(1)
    emissions, soft = torch.randn(LENGTH, BOTH.n_tags), torch.randn(LENGTH, OLD.n_tags).numpy()
    part = partly("NEW")
    paths = all_paths(BOTH, LENGTH)
    new_tags = [block.start + 1 for block in (BOTH.begin, BOTH.single, BOTH.end, BOTH.inside)]
    agrees = (paths[:, list(NEW_ENTITY)] == list(NEW_ENTITY.values())).all(axis=1)
    agrees &= ~np.isin(paths[:, [0, 3]], new_tags).any(axis=1)
    paths = paths[agrees]
    probabilities = scores_of(student, emissions, paths).softmax(0)
    probability = float(probabilities[torch.from_numpy(paths[:, 0] == BOTH.single.start)].sum())
    without = completion_loss(student, teacher, emissions, [soft], [part])
    with_span = replace(part, incorrect=[IncorrectSpan(0, 1, 0)])
    for weight in (1.0, 0.5):
        loss = completion_loss(student, teacher, emissions, [soft], [replace(with_span, weight=weight)])
        expected = weight * (float(without.detach()) - np.log1p(-probability))
        assert float(loss.detach()) == pytest.approx(expected, rel=1e-4)


def test_a_text_annotated_for_all_labels_has_none_open(partly):
    assert partly("OLD", "NEW").unannotated_labels is None
    assert partly("NEW").unannotated_labels.tolist() == [True, False]
    with pytest.raises(
        ValueError, match=r"user_data\['spacy_tener.labels'\] must be a list of labels, but is \['a', 1\]"
    ):
        partly("a", 1)


def test_windows_hold_each_unit_once(partly):
    target = partly("NEW", text="甲乙丙丁戊己", entities=((2, 4, "NEW"),))
    parts = [target.in_window(window) for window in (Window(0, 4, 0, 3), Window(2, 6, 3, 6))]
    # The entity begins in the kept part of the first window, so that the second window has nothing to say of its end.
    assert [part.open_units.tolist() for part in parts] == [[True, True, False, False], [False, False, True, True]]
    assert parts[1].agreeing(BOTH)[:2].all()


def test_a_component_learns_a_label_and_keeps_its_own(learned, tmp_path, entities_of):
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


def test_all_that_is_known_of_a_label_goes_on_under_its_new_name(learned):
    pipe = learned().get_pipe("tener_ner")
    label, *others = pipe.labels
    pipe.cfg |= {"threshold": {label: 0.5}, "latin_edges": {label: [9, 1]}, "labels_over_lines": [label]}
    before = pipe.label_index
    pipe.extend([], rename={label: "NAME"})
    assert pipe.labels == ("NAME", *others)
    assert (pipe.cfg["threshold"], pipe.cfg["latin_edges"]) == ({"NAME": 0.5}, {"NAME": [9, 1]})
    assert (pipe.label_index.tags_by_unit_type == before.tags_by_unit_type).all()


def test_what_cannot_be_renamed_is_refused(learned):
    pipe = learned().get_pipe("tener_ner")
    first, second = pipe.labels[:2]
    with pytest.raises(RemedyError, match="label to rename"):
        pipe.extend([], rename={"NONE": "A"})
    with pytest.raises(RemedyError, match="Two labels of 'tener_ner' would have the same name"):
        pipe.extend([], rename={first: second})
