"""The overlays that learn from other pipelines' predictions: what they add to the config of a corpus."""

import pytest
from tiny_trainings import make_config, tener

from spacy_tener.training.config_files import corpus_reader
from spacy_tener.training.overlays import compose


@pytest.mark.parametrize("base", ["weibo", "wnut17", "sample"])
def test_silver_stands_beside_the_corpus_of_the_config(base):
    alone, mixed = (compose(base, overlays) for overlays in ([], ["silver"]))
    reader = mixed["corpora"]["train"]
    assert reader["readers"]["gold"] == alone["corpora"]["train"]
    assert reader["readers"]["silver"]["path"] == "${paths.silver}"
    assert corpus_reader(mixed) == corpus_reader(alone)
    mixed["corpora"]["train"] = alone["corpora"]["train"]
    del mixed["paths"]["silver"]
    assert mixed == alone


def test_the_taught_ask_their_teacher(tmp_path):
    make_config(tmp_path, tener()).to_disk(tmp_path / "base.cfg")
    config = compose(tmp_path / "base.cfg", ["distilled"])
    teacher = config["initialize"]["components"]["tener_ner"]["teacher"]
    assert teacher["@misc"] == "spacy_tener.Teacher.v1"
    assert teacher["path"] == "${paths.teacher}"
