"""Nested entities: nesting depths, exact probabilities, training, and existing entities."""

import itertools

import numpy as np
import pytest
import spacy
import torch
from crf_brute_force import all_paths, path_score
from losses import get_loss
from small_systems import learn
from spacy.tokens import Doc, Span
from spacy.training import Example
from thinc.api import Adam

from spacy_tener.annotate.tasks import entity_task
from spacy_tener.architectures.tagger import resize_output, split_depths, torch_crf
from spacy_tener.errors import UserError
from spacy_tener.evaluation.scores import CountingScorer
from spacy_tener.pipeline.learning.distillation import Teacher
from spacy_tener.pipeline.learning.targets import make_targets
from spacy_tener.pipeline.nesting import nesting_depths, nesting_levels
from spacy_tener.pipeline.settings import NERSettings
from spacy_tener.pipeline.tags import UNKNOWN, index_labels
from spacy_tener.tagging import TagLayout

TEXTS = [
    ("他在北京大学医学院工作", [(2, 4, "GPE"), (2, 6, "ORG"), (2, 9, "ORG")]),
    ("他去了北京", [(3, 5, "GPE")]),
    ("上海大学很大", [(0, 2, "GPE"), (0, 4, "ORG")]),
    ("今天天气很好", []),
]
TEXT, NESTED = TEXTS[0]


def gold(nlp, text, entities, missing=()):
    """A Doc of characters with nested annotation."""
    doc = Doc(nlp.vocab, words=list(text), spaces=[False] * len(text))
    doc.spans["sc"] = [Span(doc, start, end, label=label) for start, end, label in entities]
    ents = spacy.util.filter_spans(list(doc.spans["sc"]))
    doc.set_ents(ents, missing=[doc[start:end] for start, end in missing], default="outside")
    return doc


def spans_of(doc, key="sc"):
    return sorted((span.start_char, span.end_char, span.label_) for span in doc.spans[key])


@pytest.fixture
def nested(blank, tiny_model):
    """Return a function that makes an untrained pipeline for nested entities."""

    def make(depth=3, **config):
        return blank(model={**tiny_model, "depth": depth}, **{"spans_key": "sc", **config})

    return make


@pytest.fixture(scope="module")
def store():
    return {}


@pytest.fixture
def trained(store, nested):
    """Return a function that makes a pipeline that overfits the texts."""

    def make(**config):
        if "nested" not in store:
            nlp = nested()
            learn(nlp, [Example(nlp.make_doc(text), gold(nlp, text, spans)) for text, spans in TEXTS])
            store["nested"] = nlp.to_bytes()
        nlp = nested().from_bytes(store["nested"])
        nlp.get_pipe("tener_ner").cfg.update(config)
        return nlp

    return make


@pytest.mark.parametrize(
    ("entities", "depths"),
    [
        ([], []),
        ([(0, 2, "A"), (2, 4, "A")], [0, 0]),
        ([(2, 4, "G"), (2, 6, "O"), (2, 9, "O"), (7, 8, "O")], [2, 1, 0, 1]),
        # Equal spans of two labels, in the order of these; and spans that cross.
        ([(0, 2, "B"), (0, 2, "A")], [1, 0]),
        ([(0, 4, "A"), (3, 9, "A"), (0, 2, "A")], [1, 0, 0]),
        ([(0, 6 - i, "A") for i in range(6)], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_depth_counts_longer_overlapping_entities(entities, depths):
    assert nesting_depths(entities) == depths


def test_levels_of_inner_entities_are_counted_from_the_innermost():
    """北京 in 北京大学医学院 has one level, whether 北京大学 is annotated too or not."""
    assert nesting_levels([(2, 4, "GPE"), (2, 6, "ORG"), (2, 9, "ORG"), (20, 22, "GPE")]) == [1, 2, 0, 0]
    assert nesting_levels([(2, 4, "GPE"), (2, 9, "ORG")]) == [1, 0]


def test_probabilities_equal_brute_force_over_all_depths(nested):
    """Brute force: every pair of paths of a short text, the tags of an outer and of an inner CRF."""
    nlp = nested(depth=2)
    nlp.initialize(lambda: [Example(nlp.make_doc("北"), gold(nlp, "北京", [(0, 1, "GPE"), (0, 2, "ORG")]))])
    pipe = nlp.get_pipe("tener_ner")
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in torch_crf(pipe.model).parameters():
            weight.normal_()
        pipe.model.get_ref("output_layer").shims[0].module.emit.bias.normal_(std=2.0)
    doc = nlp.make_doc("北京大")
    layout, scores = TagLayout(2), torch.from_numpy(pipe.model.predict([doc])[0])
    paths = all_paths(layout, 3)
    n = len(paths)
    tags = torch.from_numpy(paths.ravel())
    sums = [
        path_score(torch_crf(pipe.model), part.repeat(n, 1), [3] * n, tags) for part in scores.split(layout.n_tags, 1)
    ]
    sums = [part.detach().double() for part in sums]
    sets = [frozenset(zip(*(column.tolist() for column in layout.decode(path)), strict=True)) for path in paths]
    log_p = (sums[0][:, None] + sums[1]).flatten().log_softmax(0)
    pairs = [outer | inner for outer, inner in itertools.product(sets, sets)]
    p = log_p.exp()
    spans = [(start, end, label) for start in range(3) for end in range(start + 1, 4) for label in range(2)]
    expected = [float(p[[span in pair for pair in pairs]].sum()) for span in spans]
    decoding = next(pipe.decode([doc]))
    offsets = [(start, end, pipe.labels[label]) for start, end, label in spans]
    assert decoding.probabilities(offsets) == pytest.approx(expected, abs=1e-6)
    assert decoding.entropy == pytest.approx(-float((p * log_p).sum()), abs=1e-5)
    by_set = {pair: [i for i, other in enumerate(pairs) if other == pair] for pair in pairs}
    ranked = sorted(by_set, key=lambda pair: -float(p[by_set[pair]].max()))
    for reading, pair in zip(decoding.k_best(7), ranked[:7], strict=True):
        assert {e.offsets for e in reading.entities} == {offsets[spans.index(span)] for span in pair}
        assert float(p[by_set[pair]].max()) - 1e-6 <= reading.probability <= float(p[by_set[pair]].sum()) + 1e-6
        assert np.exp(reading.log_probability) == pytest.approx(reading.probability)
    likely = pairs[int(p.argmax())]
    assert {e.offsets for e in decoding.entities} == {offsets[spans.index(span)] for span in likely}
    probable = {span: value for span, value in zip(offsets, expected, strict=True) if value >= 0.1}
    found = decoding.marginals(0.1)
    assert {e.offsets: e.probability for e in found.entities} == pytest.approx(probable, abs=1e-6)
    empty = [float(p[[all(not s <= i < e for s, e, _ in pair) for pair in pairs]].sum()) for i in range(3)]
    assert found.outside == pytest.approx(empty, abs=1e-6)
    reference = gold(nlp, "北京大", [(0, 3, "ORG"), (0, 2, "GPE")])
    outer, inner = ({(0, 3, pipe.labels.index("ORG"))}, {(0, 2, pipe.labels.index("GPE"))})
    assert decoding.likelihood(reference) == pytest.approx(
        float(p.reshape(n, n)[sets.index(frozenset(outer)), sets.index(frozenset(inner))]), abs=1e-7
    )


def test_trained_pipeline_predicts_nested_entities_after_saving(trained, tmp_path):
    nlp = trained()
    nlp.to_disk(tmp_path)
    for loaded in (nlp, spacy.load(tmp_path)):
        for doc, (_, spans) in zip(loaded.pipe(text for text, _ in TEXTS), TEXTS, strict=True):
            assert spans_of(doc) == spans
            assert np.min(doc.spans["sc"].attrs["scores"], initial=1.0) > 0.5
    assert [(ent.start, ent.end, ent.label_) for ent in nlp(TEXT).ents] == [(2, 9, "ORG")]
    scores = nlp.evaluate([Example(nlp.make_doc(text), gold(nlp, text, spans)) for text, spans in TEXTS])
    assert scores["ents_f"] == scores["spans_sc_f"] == 1.0
    assert [depth["gold"] for depth in scores["spans_sc_per_depth"]] == [3, 2, 1]


def test_long_documents_are_processed_in_windows_and_by_characters(trained):
    text = TEXT * 30
    expected = [(start + 11 * i, end + 11 * i, label) for i in range(30) for start, end, label in NESTED]
    assert spans_of(trained(window=40, overlap=8, max_units=64)(text)) == sorted(expected)
    nlp = trained(view="characters")
    doc = nlp.get_pipe("tener_ner")(Doc(nlp.vocab, words=["他在", "北京大学医学", "院工作"], spaces=[False] * 3))
    group = doc.spans["tener_ner_chars"]
    exact = zip(group.attrs["char_offsets"], group, strict=True)
    assert sorted((*offsets, span.label_) for offsets, span in exact) == NESTED


def test_entities_in_the_same_word_are_scored_separately(trained):
    nlp = trained(view="characters")
    (of_characters,) = entity_task(nlp)([TEXT])
    nlp.tokenizer = lambda text: Doc(nlp.vocab, words=["他在", "北京大学医学院", "工作"], spaces=[False] * 3)
    (found,) = entity_task(nlp)([TEXT])
    assert [entity.offsets for entity in found] == NESTED
    for entity, expected in zip(found, of_characters, strict=True):
        assert 0.5 < entity.probability == pytest.approx(expected.probability)
    example = Example(nlp.make_doc(TEXT), gold(nlp, TEXT, NESTED))
    scores = CountingScorer(nlp).score([Example(nlp(example.predicted), example.reference)])
    assert scores["ents_f"] == scores["spans_sc_f"] == 1.0
    assert scores["ents_counts"] == {"ORG": {"tp": 1, "fp": 0, "fn": 0}}


def test_inner_entity_shares_token_and_label_with_existing_entity(trained):
    nlp = trained(view="characters")
    doc = Doc(nlp.vocab, words=["他在", "北京大学医学院", "工作"], spaces=[False] * 3)
    doc.set_ents([Span(doc, 1, 2, label="ORG")], default="missing")
    for _ in range(2):
        doc = nlp.get_pipe("tener_ner")(doc)
        group = doc.spans["tener_ner_chars"]
        found = [(*offsets, span.label_) for offsets, span in zip(group.attrs["char_offsets"], group, strict=True)]
        assert sorted(found) == NESTED
        existing = [entity for entity, score in zip(found, group.attrs["char_scores"], strict=True) if score == 1]
        assert existing == [(2, 9, "ORG")]
        spans = doc.spans["sc"]
        scores = zip(spans, spans.attrs["scores"], strict=True)
        assert [(span.start, span.end, span.label_) for span, score in scores if score == 1] == [(1, 2, "ORG")]


def test_threshold_applies_to_the_probability_over_all_depths(trained):
    nlp = trained(threshold={"GPE": 1.0, "ORG": 0.0})
    assert spans_of(nlp(TEXT)) == [span for span in NESTED if span[2] == "ORG"]


def test_predicted_entities_never_cross_existing_entities(trained):
    nlp = trained()
    for preset in ((2, 9, "GPE"), (3, 7, "ORG"), (0, 9, "ORG")):
        doc = nlp.make_doc(TEXT)
        doc.ents = [Span(doc, *preset[:2], label=preset[2])]
        doc = nlp.get_pipe("tener_ner")(doc)
        found = spans_of(doc)
        assert preset in found
        assert preset in [(ent.start, ent.end, ent.label_) for ent in doc.ents]
        first, last, _ = preset
        assert not any(start < first < end < last or first < start < last < end for start, end, _ in found)
        again = nlp.get_pipe("tener_ner")(doc)
        assert spans_of(again) == found
    blocked = nlp.make_doc(TEXT)
    blocked.set_ents([], blocked=[blocked[2:4]], default="missing")
    assert all(start >= 4 for start, _, _ in spans_of(nlp.get_pipe("tener_ner")(blocked)))


@pytest.mark.parametrize(
    ("missing", "has_group", "names"),
    [
        ([], True, ["O B I E", "B E O O"]),
        ([(0, 1)], True, ["- B I E", "B E O O"]),
        ([], False, ["O B I E", "- - - -"]),
    ],
)
def test_missing_annotation_is_missing_at_every_depth(missing, has_group, names):
    nlp = spacy.blank("zh")
    reference = gold(nlp, "他北京人", [(1, 4, "X"), (0, 2, "X")], missing=missing)
    if not has_group:
        del reference.spans["sc"]
    [targets] = make_targets([Example(reference.copy(), reference)], index_labels("X"), NERSettings(spans_key="sc"), 2)
    tags = TagLayout(1).names(("X",))
    assert [" ".join("-" if t == UNKNOWN else tags[t][0] for t in part.tags) for part in targets] == names


def test_partial_annotation_has_no_gradient_for_missing_tokens(nested, gradients):
    nlp = nested(depth=2)
    examples = [Example(nlp.make_doc(text), gold(nlp, text, spans)) for text, spans in TEXTS[1:]]
    nlp.initialize(lambda: examples)
    for example in examples:
        del example.reference.spans["sc"]
    pipe = nlp.get_pipe("tener_ner")
    pipe.update(examples)
    rows = next(gradient for name, gradient in gradients(pipe).items() if name.endswith("emit.weight"))
    outer, inner = rows.chunk(2)
    assert float(outer.abs().max()) > 0
    assert float(inner.abs().max()) == pytest.approx(0, abs=1e-6)


def test_white_space_is_trimmed_and_equal_spans_keep_two_labels():
    nlp = spacy.blank("zh")
    spans = [(0, 3, "A"), (0, 3, "B"), (1, 3, "A")]
    reference = gold(nlp, "北京 人", spans)
    labels, settings = index_labels(["A", "B"]), NERSettings(spans_key="sc")
    [targets] = make_targets([Example(reference.copy(), reference)], labels, settings, 3)
    names = TagLayout(2).names(("A", "B"))
    assert [[names[tag] for tag in part.tags] for part in targets] == [
        ["B-A", "E-A", "O", "O"],
        ["O", "S-A", "O", "O"],
        ["B-B", "E-B", "O", "O"],
    ]


def test_invalid_nested_training_raises_error(nested, blank, tiny_model, trained):
    nlp = nested()
    deep = [Example(nlp.make_doc(TEXT), gold(nlp, TEXT, [(0, 9 - i, "X") for i in range(6)]))]
    with pytest.raises(UserError, match=r"nesting depth of 6, but the model has a depth of 3.*Set depth = 6"):
        nlp.initialize(lambda: deep)
    flat = [Example(nlp.make_doc(TEXT), gold(nlp, TEXT, NESTED))]
    del flat[0].reference.spans["sc"]
    with pytest.raises(UserError, match=r"No text of the training data has doc.spans\['sc'\].*--overlap spans"):
        nlp.initialize(lambda: flat)
    with pytest.raises(UserError, match="no spans_key"):
        nested(spans_key=None).initialize(lambda: deep)
    teacher = Teacher(trained(), "tener_ner", weight=0.5, temperature=1.0, limit=1)
    with pytest.raises(UserError, match="its teacher has another depth"):
        blank().get_pipe("tener_ner").initialize(lambda: flat, teacher=teacher)
    with pytest.raises(ValueError, match=r"nO is 10, but must be .* with depth = 3"):
        resize_output(nlp.get_pipe("tener_ner").model, 10)


def test_adding_a_label_keeps_probabilities_and_rehearsal_works(trained):
    nlp = trained()
    before = nlp(TEXT).spans["sc"].attrs["scores"]
    nlp.resume_training()
    pipe = nlp.get_pipe("tener_ner")
    examples = [Example(nlp.make_doc(text), nlp.make_doc(text)) for text, _ in TEXTS]
    assert pipe.rehearse(examples)["tener_ner"] >= 0
    pipe.add_label("NEW")
    assert spans_of(nlp(TEXT)) == NESTED
    assert nlp(TEXT).spans["sc"].attrs["scores"] == pytest.approx(before, abs=0.2)


def test_student_learns_from_nested_teacher(trained, nested):
    teacher = Teacher(trained(), "tener_ner", weight=1.0, temperature=1.0, limit=1 << 20)
    nlp = nested()
    examples = [Example(nlp.make_doc(text), gold(nlp, text, spans)) for text, spans in TEXTS]
    nlp.get_pipe("tener_ner").initialize(lambda: examples, nlp=nlp, teacher=teacher)
    learn(nlp, examples, optimizer=Adam(0.01))
    assert [spans_of(nlp(text)) for text, _ in TEXTS] == [spans for _, spans in TEXTS]


def test_empty_emissions_are_split_by_depth():
    assert split_depths(np.empty((0, 15)), 3).shape == (0, 5)


def test_listed_words_are_kept_and_blocked_words_excluded_at_all_depths(trained):
    nlp = trained()
    lists = nlp.add_pipe("entity_lists", before="tener_ner")
    assert spans_of(nlp(TEXT)) == NESTED
    lists.block(["北京大学"])
    assert all(start >= 6 or end <= 2 for start, end, _ in spans_of(nlp(TEXT)))
    lists.remove(["北京大学"])
    lists.add({"京大学医": "PRODUCT"})
    doc = nlp(TEXT)
    assert (3, 7, "PRODUCT") in [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    assert (3, 7, "PRODUCT") in spans_of(doc)
    with nlp.select_pipes(disable=["tener_ner"]):
        (decoding,) = nlp.get_pipe("tener_ner").decode([nlp(TEXT)])
    probabilities = decoding.probabilities([(3, 7, "PRODUCT"), (2, 9, "ORG"), (2, 4, "GPE")])
    assert probabilities == [1.0, pytest.approx(1.0, abs=0.01), 0.0]


@pytest.mark.parametrize("listed", [(2, 4, "GPE"), (2, 6, "ORG"), (2, 4, "PRODUCT"), (4, 6, "GPE"), (6, 9, "PRODUCT")])
def test_entities_around_a_listed_word_are_found(trained, listed):
    """The listed word is part of longer entities, and may have a label that the model does not have."""
    nlp = trained()
    lists = nlp.add_pipe("entity_lists", before="tener_ner")
    start, end, label = listed
    lists.add({TEXT[start:end]: label})
    doc = nlp(TEXT)
    assert spans_of(doc) == sorted({*NESTED, listed})
    assert listed in [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]
    with nlp.select_pipes(disable=["tener_ner"]):
        (decoding,) = nlp.get_pipe("tener_ner").decode([nlp(TEXT)])
    assert sorted(entity.offsets for entity in decoding.entities) == spans_of(doc)
    assert decoding.probabilities([listed, (2, 9, "ORG")]) == [1.0, pytest.approx(1.0, abs=0.02)]
    assert decoding.k_best(1)[0].entities == decoding.entities
    if len(spans_of(doc)) <= 4 and label in ("GPE", "ORG"):
        assert decoding.likelihood(gold(nlp, TEXT, spans_of(doc))) > 0.9
    # The decision does not depend on other texts in the batch.
    assert [spans_of(other) for other in nlp.pipe([TEXTS[1][0], TEXT, TEXTS[2][0]])][1] == spans_of(doc)


def test_blocked_word_inside_listed_word_is_not_an_entity(trained):
    nlp = trained()
    lists = nlp.add_pipe("entity_lists", before="tener_ner")
    lists.add({TEXT[2:9]: "ORG"})
    assert spans_of(nlp(TEXT)) == NESTED
    lists.block([TEXT[2:6]])
    found = spans_of(nlp(TEXT))
    assert (2, 9, "ORG") in found
    assert [span for span in found if span[0] < 6 and span[1] > 2] == [(2, 9, "ORG")]


def test_loss_is_the_same_in_windows_and_from_emissions(trained):
    """A model that overfits a document has a very low loss for it, as a whole text or in windows."""
    nlp = trained()
    pipe = nlp.get_pipe("tener_ner")
    examples = [Example(nlp.make_doc(text), gold(nlp, text, spans)) for text, spans in TEXTS]
    losses = pipe.update(examples)["tener_ner"]
    loss, gradients = get_loss(pipe, examples, pipe.model.predict([example.predicted for example in examples]))
    assert loss == pytest.approx(losses, rel=1e-3)
    assert [part.shape for part in gradients] == [(len(text), 3 * 9) for text, _ in TEXTS]
    text = TEXT * 10
    long = [(start + 11 * i, end + 11 * i, label) for i in range(10) for start, end, label in NESTED]
    pipe.cfg.update(window=40, overlap=8, max_units=64)
    assert pipe.update([Example(nlp.make_doc(text), gold(nlp, text, long))])["tener_ner"] < 3.0


def test_negative_examples_apply_to_all_depths(trained):
    nlp = trained(incorrect_spans_key="wrong")
    before = next(nlp.get_pipe("tener_ner").decode([nlp.make_doc(TEXT)])).probabilities([(2, 6, "ORG")])
    reference = Doc(nlp.vocab, words=list(TEXT), spaces=[False] * len(TEXT))
    reference.spans["wrong"] = [Span(reference, 2, 6, label="ORG")]
    optimizer = Adam(0.01)
    for _ in range(10):
        nlp.update([Example(nlp.make_doc(TEXT), reference)], sgd=optimizer)
    after = next(nlp.get_pipe("tener_ner").decode([nlp.make_doc(TEXT)])).probabilities([(2, 6, "ORG")])
    assert before[0] > 0.5 > after[0]
    reference.ents = [Span(reference, 2, 6, label="ORG")]
    with pytest.raises(ValueError, match="E868"):
        nlp.update([Example(nlp.make_doc(TEXT), reference)])


def test_entities_do_not_contain_blocked_words_that_overlap_other_entities(trained):
    nlp = trained()
    lists = nlp.add_pipe("entity_lists", before="tener_ner")
    lists.add({"北京大学": "PRODUCT"})
    lists.block(["学医学"])
    found = spans_of(nlp(TEXT))
    assert (2, 6, "PRODUCT") in found
    assert not any(start <= 5 and end >= 8 for start, end, _ in found)
