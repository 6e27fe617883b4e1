"""The bundled corpora are learned by the configs that go with them, and better than spaCy's `ner` learns them."""

from pathlib import Path

import pytest
from conversion import convert
from spacy import util
from spacy.cli.init_config import init_config
from spacy.cli.train import train
from spacy.training.corpus import Corpus

from spacy_tener.workbench.corpus.convert import DocOptions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["zh", "en"])
def corpus(request, tmp_path_factory):
    """The language, and where its sample has been converted to."""
    folder = tmp_path_factory.mktemp(request.param)
    convert([ROOT / "assets" / "sample" / request.param], folder, making=DocOptions(lang=request.param))
    return request.param, folder


def score_of(config, folder, output):
    overrides = {"paths.train": str(folder / "train.spacy"), "paths.dev": str(folder / "dev.spacy")}
    train(config, output, overrides=overrides)
    nlp = util.load_model(output / "model-best")
    return nlp.evaluate(list(Corpus(folder / "test.spacy")(nlp)))["ents_f"]


def test_the_sample_is_learned_better_than_by_ner(corpus, tmp_path):
    lang, folder = corpus
    ner = init_config(lang=lang, pipeline=["ner"], optimize="efficiency", gpu=False)
    ner["training"]["max_steps"] = 1600
    ner.to_disk(tmp_path / "ner.cfg")
    config = ROOT / "configs" / ("sample.cfg" if lang == "zh" else "sample_en.cfg")
    ours = score_of(config, folder, tmp_path / "tener")
    theirs = score_of(tmp_path / "ner.cfg", folder, tmp_path / "ner")
    assert ours > 0.6
    assert ours > theirs
