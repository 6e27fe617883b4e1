"""Tests of attention maps: they contain the weights that the layers apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spacy
import torch
from research_commands import run_research
from small_systems import UNSEEN, examples_of, pipeline, trained

from research.attention import look, panels
from spacy_tener.nn.shim import torch_shims

TEXT = "吴重阳在中国银行工作。"
WORDS = ["中国", "中国银行", "银行", "工作"]


def started(tok2vec: dict[str, Any]) -> spacy.Language:
    nlp = pipeline(tok2vec)
    nlp.initialize(lambda: examples_of(nlp))
    return nlp


def test_a_query_of_a_selection_looks_only_at_keys_that_it_keeps(tok2vecs: dict[str, Any]) -> None:
    (found,) = look(started(tok2vecs["FLAT_ATSSA"]), TEXT).maps
    assert found.weights.shape == (2, 11, 11)
    np.testing.assert_allclose(found.weights.sum(-1), 1.0, atol=1e-5)
    assert 3 <= (found.weights > 0).sum(-1).min() < 11


@pytest.mark.parametrize("layers", [1, 2])
def test_both_modules_of_mect_look_at_characters_and_words(layers: int, tok2vecs: dict[str, Any]) -> None:
    found = look(started({**tok2vecs["MECT"], "layers": layers}), TEXT)
    assert [heat_map.title for heat_map in found.maps] == ["lattice attention", "radical attention"]
    assert found.words == WORDS
    for heat_map in found.maps:
        assert heat_map.weights.shape == (2, 11, 11 + 4)
        np.testing.assert_allclose(heat_map.weights.sum(-1), 1.0, atol=1e-5)


def test_relations_are_the_lengths_of_r_between_0_and_1(tok2vecs: dict[str, Any]) -> None:
    nlp = started(tok2vecs["GRN"])
    embed, grn = nlp.get_pipe("tener_ner").model.get_ref("tok2vec").layers
    (embedded,) = embed.predict([nlp.make_doc(TEXT)])
    (encoder,) = (shim.module for shim in torch_shims(grn))
    with torch.inference_mode():
        x = encoder.context(torch.from_numpy(embedded), np.array([len(TEXT)]))
        relation = encoder.relation
        lengths = np.array([[float((relation.left(a) + relation.right(b)).norm()) for b in x] for a in x])
    (found,) = look(nlp, TEXT).maps
    expected = (lengths - lengths.min()) / (lengths.max() - lengths.min())
    np.testing.assert_allclose(found.weights[0], expected, atol=1e-4)


def test_rows_of_relations_are_the_words_of_entities() -> None:
    nlp = spacy.load(trained("grn"))
    found = look(nlp, UNSEEN)
    ((title, values, rows, columns),) = panels(found)
    inside = {place for ent in found.doc.ents for place in range(ent.start, ent.end)}
    assert inside
    assert title == "relations of words of entities"
    assert rows == [token.text for token in found.doc if token.i in inside]
    assert values.shape == (len(rows), len(columns)) == (len(inside), len(UNSEEN))


def test_looking_leaves_nothing_behind() -> None:
    nlp = spacy.load(trained("mect"))
    before = [ent.text for ent in nlp(UNSEEN).ents]
    look(nlp, UNSEEN)
    modules = [part for shim in torch_shims(nlp.get_pipe("tener_ner").model) for part in shim.module.modules()]
    assert not any(module._forward_pre_hooks for module in modules)
    assert [ent.text for ent in nlp(UNSEEN).ents] == before


@pytest.mark.parametrize("name", ["flat_atssa", "mect", "grn"])
def test_a_text_becomes_a_picture(name: str, tmp_path: Path) -> None:
    ran = run_research("attention", trained(name), UNSEEN, "-o", tmp_path / "figure.png")
    assert ran.code == 0, ran.text
    assert (tmp_path / "figure.png").stat().st_size > 1000


def test_what_has_no_picture_says_why(tmp_path: Path) -> None:
    path = tmp_path / "figure.png"
    assert "has no map" in run_research("attention", trained("tener"), UNSEEN, "-o", path).text
    assert "room for 2 to 48" in run_research("attention", trained("grn"), UNSEEN * 9, "-o", path).text
    assert "has 2 heads" in run_research("attention", trained("mect"), UNSEEN, "-o", path, "--head", 3).text
