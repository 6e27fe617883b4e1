"""The embedder of components found in a pipeline, and read character by character."""

from __future__ import annotations

import numpy as np
import pytest
import spacy
from spacy.tokens import Doc
from thinc.api import Adam

from spacy_tener.features.components.components import Structures
from spacy_tener.models.embed.char import build_char_embed
from spacy_tener.models.embed.component import build_component_embed
from spacy_tener.models.embed.join import build_join_embed
from spacy_tener.workbench.report.component_space import (
    ComponentEmbedder,
    chinese_characters,
    component_embedders,
    radicals,
)

PARTS = {"江": ("氵", "工"), "河": ("氵", "可"), "湖": ("氵", "胡"), "钢": ("钅", "冈"), "休": ("亻", "木")}
JOINED = {
    "@architectures": "spacy_tener.TENER.v1",
    "width": 16,
    "heads": 2,
    "embed": {
        "@architectures": "spacy_tener.JoinEmbed.v1",
        "first": {"@architectures": "spacy_tener.CharEmbed.v1", "width": 8, "bigram_width": 0},
        "second": {"@architectures": "spacy_tener.ComponentEmbed.v1", "width": 8},
    },
}


def few_characters() -> Structures:
    return Structures(PARTS, "made up")


@pytest.fixture
def embedder() -> ComponentEmbedder:
    """One that has learned from 江 and 河, with dropout on."""
    model = build_component_embed(width=8, source=few_characters)
    model.initialize()
    doc = Doc(spacy.blank("zh").vocab, words=["江", "河", "木"])
    optimizer = Adam(0.01)
    for _ in range(3):
        Y, backprop = model.begin_update([doc])
        backprop([np.ones_like(y) for y in Y])
        model.finish_update(optimizer)
    return ComponentEmbedder("tener_ner", model)


def pipeline(tok2vec) -> spacy.language.Language:
    nlp = spacy.blank("zh")
    nlp.add_pipe("sentencizer")
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}
    nlp.add_pipe("tener_ner", name="names", config={"model": model})
    return nlp


def test_an_embedder_is_found_beside_another_one_and_named_by_its_component() -> None:
    (found,) = component_embedders(pipeline(JOINED))
    assert found.pipe == "names"
    assert found.model.name == "component_embed"


def test_an_embedder_is_found_inside_mect() -> None:
    (found,) = component_embedders(pipeline({"@architectures": "spacy_tener.MECT.v1", "width": 16, "heads": 2}))
    assert found.model.name == "component_embed"


def test_a_pipeline_without_one_has_none() -> None:
    assert component_embedders(pipeline({"@architectures": "spacy_tener.TENER.v1"})) == []
    assert component_embedders(spacy.blank("zh")) == []


def test_characters_are_known_if_training_has_shown_all_their_components(embedder) -> None:
    assert embedder.known("江河湖钢木休工") == ["江", "河", "木", "工"]
    assert embedder.components("江湖木") == ["氵工", "氵胡", "木"]


def test_vectors_are_the_embedder_s_own_without_dropout(embedder) -> None:
    vectors = embedder.vectors(["河", "江"])
    assert vectors.shape == (2, 8)
    doc = Doc(spacy.blank("zh").vocab, words=["江"])
    np.testing.assert_allclose(embedder.model.predict([doc])[0], vectors[1:], atol=1e-6)
    np.testing.assert_array_equal(embedder.vectors(["河", "江"]), vectors)


def test_untrained_has_fresh_weights_of_the_seed_and_leaves_the_trained_ones(embedder) -> None:
    trained = embedder.vectors(["江", "河"])
    first, again, other = (embedder.untrained(seed).vectors(["江", "河"]) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert np.abs(first - other).max() > 1e-3
    assert np.abs(first - trained).max() > 1e-3
    np.testing.assert_array_equal(embedder.vectors(["江", "河"]), trained)


def test_untrained_knows_the_same_characters_and_tells_them_apart(embedder) -> None:
    fresh = embedder.untrained(1)
    assert fresh.known("江河湖钢") == ["江", "河"]
    first, second = fresh.vectors(["江", "河"])
    assert np.abs(first - second).max() > 1e-3


def test_a_radical_is_looked_for_among_the_components() -> None:
    assert radicals(["氵工", "木寸", "一木", "木"], ["江", "村", "未", "木"]) == ["氵", "木", "木", "木"]


def test_chinese_characters_are_those_of_all_strings_once_and_in_order() -> None:
    assert chinese_characters(["江河", "河a1，。🙂", "PER", "𠀀", "", "カ"]) == ["江", "河", "𠀀"]


def test_measuring_changes_nothing_of_a_model() -> None:
    join = build_join_embed(build_char_embed(width=4, bigram_width=0), build_component_embed(source=few_characters))
    join.initialize()
    before = join.to_bytes()
    node = next(node for node in join.walk() if node.name == "component_embed")
    embedder = ComponentEmbedder("x", node)
    embedder.vectors(["江"])
    embedder.untrained(3)
    assert join.to_bytes() == before
