"""Entities found in annotated texts: which are counted, which are right, and how probable they are."""

from pathlib import Path

import numpy as np
import pytest
from spacy.tokens import Span
from spacy.training import Example

from spacy_tener.errors import RemedyError
from spacy_tener.workbench.calibration.outcomes import Outcomes, check_enough, find_outcomes

TEXT, SOURCE = "王小明去了上海", Path("dev.spacy")
PERSON, PLACE = (0, 3, "PER"), (5, 7, "GPE")
TRAINED: dict[str, bytes] = {}


@pytest.fixture
def nlp(train):
    if "bytes" not in TRAINED:
        TRAINED["bytes"] = train(steps=40).to_bytes()
    return train(steps=0).from_bytes(TRAINED["bytes"])


def example(nlp, *entities, missing=(), text=TEXT):
    doc = nlp.make_doc(text)
    doc.set_ents([Span(doc, a, z, label) for a, z, label in entities], missing=[doc[a:z] for a, z in missing])
    return Example(nlp.make_doc(text), doc)


def test_each_entity_has_its_text_and_whether_it_is_right_over_several_groups(nlp):
    """Groups hold 200 units: forty texts are two of them."""
    nlp.get_pipe("tener_ner").cfg.update(max_units=200)
    examples = [example(nlp, PERSON, *([PLACE] if i % 3 else [])) for i in range(40)]
    found = find_outcomes(nlp, "tener_ner", examples, SOURCE)
    assert len(found.decodings) == 2
    labels = nlp.get_pipe("tener_ner").labels
    rows = [(text, label, label == "PER" or text % 3 > 0) for text in range(40) for label in ("PER", "GPE")]
    assert list(zip(found.text, [labels[i] for i in found.label], found.right, strict=True)) == rows
    scored = nlp.get_pipe("tener_ner").scored([each.predicted for each in examples])
    expected = [entity.probability for entities in scored for entity in entities]
    np.testing.assert_allclose(found.probabilities(), expected, atol=1e-6)
    assert (found.probabilities(4.0) < found.probabilities()).all()


def test_what_overlaps_missing_annotation_is_not_counted(nlp):
    between = example(nlp, missing=[(3, 5)])
    examples = [example(nlp, missing=[(2, 3)]), example(nlp, PERSON, missing=[(3, 4)]), between]
    found = find_outcomes(nlp, "tener_ner", examples, SOURCE)
    assert found.counted.tolist() == [False, *[True] * 5]
    assert (found.text.tolist(), found.right.tolist()) == ([0, 1, 1, 2, 2], [False, True, False, False, False])
    assert found.probabilities().shape == (5,)


def test_a_text_without_entities_is_named(nlp):
    with pytest.raises(RemedyError, match=r"dev\.spacy: the pipeline finds no entity"):
        find_outcomes(nlp, "tener_ner", [example(nlp, (0, 1, "PER"), text="去了")], SOURCE)


@pytest.mark.parametrize(("right", "wrong", "enough"), [(10, 10, True), (9, 10, False), (10, 9, False)])
def test_ten_of_each_are_enough(right, wrong, enough):
    mask = np.arange(right + wrong) < right
    outcomes = Outcomes([], mask, mask, mask, mask)
    if enough:
        check_enough(outcomes, SOURCE)
    else:
        with pytest.raises(RemedyError, match=rf"{right} right, {wrong} wrong"):
            check_enough(outcomes, SOURCE)
