"""The overlays for silver-standard data and knowledge distillation."""

import pytest
from tiny_trainings import make_config, tener

from spacy_tener.training.config_files import corpus_reader
from spacy_tener.training.overlays import compose


@pytest.mark.parametrize("base", ["weibo", "wnut17", "sample"])
def test_silver_overlay_adds_corpus_to_config(base):
    base_config, config = (compose(base, overlays) for overlays in ([], ["silver"]))
    reader = config["corpora"]["train"]
    assert reader["readers"]["gold"] == base_config["corpora"]["train"]
    assert reader["readers"]["silver"]["path"] == "${paths.silver}"
    assert corpus_reader(config) == corpus_reader(base_config)
    config["corpora"]["train"] = base_config["corpora"]["train"]
    del config["paths"]["silver"]
    assert config == base_config


def test_distilled_overlay_configures_teacher(tmp_path):
    make_config(tmp_path, tener()).to_disk(tmp_path / "base.cfg")
    config = compose(tmp_path / "base.cfg", ["distilled"])
    teacher = config["initialize"]["components"]["tener_ner"]["teacher"]
    assert teacher["@misc"] == "spacy_tener.Teacher.v1"
    assert teacher["path"] == "${paths.teacher}"
