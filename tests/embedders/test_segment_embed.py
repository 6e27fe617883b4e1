"""Test embeddings of word segmentation and part-of-speech tags by jieba."""

from __future__ import annotations

import warnings
from importlib.metadata import version

import numpy as np
import pytest
import spacy
import srsly
from spacy.training import Example

from spacy_tener.about import __version__
from spacy_tener.embedders import segment_embed as segment
from spacy_tener.embedders.segment_embed import SEGMENT, build_segment_embed
from spacy_tener.embedders.tables import observe
from spacy_tener.features.tokens import TokenBatch


def embedder(docs=(), **settings):
    model = build_segment_embed(**{"width": 8, "dropout": 0.0, "word_dropout": 0.0, **settings})
    model.initialize()
    observe(model, [TokenBatch.of(docs)])
    return model


@pytest.fixture(scope="module")
def doc_of():
    return spacy.blank("zh").make_doc


def test_rows_depend_on_tag_and_position_in_word(doc_of):
    doc = doc_of("北京上海天津来了")
    (rows,) = embedder([doc]).predict([doc])
    assert rows.shape == (8, 8)
    assert (rows[0] == rows[2]).all()
    assert (rows[1] == rows[5]).all()
    assert (rows[0] != rows[1]).any()
    assert (rows[0] != rows[6]).any()


def test_loaded_model_predicts_equally_without_warning(doc_of):
    doc = doc_of("北京欢迎你")
    model = embedder([doc])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded = embedder().from_bytes(model.to_bytes())
    np.testing.assert_array_equal(loaded.predict([doc])[0], model.predict([doc])[0])


def test_different_segmenter_version_raises_warning(doc_of, monkeypatch):
    data = embedder([doc_of("北京")]).to_bytes()
    monkeypatch.setattr(segment, "jieba_version", lambda: ("jieba 0", "rjieba 9.9"))
    with pytest.warns(UserWarning, match=r"trained with the segmenter rjieba 0\.2.*but rjieba 9\.9 .* segments"):
        embedder().from_bytes(data)


@pytest.mark.parametrize("shared", [False, True])
def test_pipeline_requirements_include_segmenter(tmp_path, shared):
    """`spacy package` uses the requirements in meta.json."""
    embed = {"@architectures": "spacy_tener.SegmentEmbed.v1", "width": 8}
    listener = {"@architectures": "spacy.Tok2VecListener.v1", "width": 8, "upstream": "*"}
    nlp = spacy.blank("zh", meta={"requirements": ["numpy"]})
    if shared:
        nlp.add_pipe("tok2vec", config={"model": embed})
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": listener if shared else embed}
    nlp.add_pipe("tener_ner", config={"model": model})
    nlp.initialize(lambda: [Example.from_dict(nlp.make_doc("北京"), {"entities": [(0, 2, "GPE")]})])
    nlp.to_disk(tmp_path)
    assert srsly.read_json(tmp_path / "meta.json")["requirements"] == [
        "numpy",
        f"spacy_tener>={__version__},<2",
        f"rjieba>={version('rjieba')}",
    ]


def test_table_has_a_row_per_tag_and_position_in_word(doc_of):
    doc = doc_of("北京上海天津来了")
    assert len(embedder([doc]).attrs["vocabulary"].tables[SEGMENT]) == 1 + 4
