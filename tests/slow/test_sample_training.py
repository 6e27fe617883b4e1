"""Training on the bundled sample corpora with their configs."""

from pathlib import Path

import pytest
from conversion import convert
from spacy import util
from spacy.cli.train import train
from spacy.training.corpus import Corpus

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=["zh", "en"])
def corpus(request, tmp_path_factory):
    """The language of a sample corpus, and the directory of the converted corpus."""
    folder = tmp_path_factory.mktemp(request.param)
    convert([ROOT / "assets" / "sample" / request.param], folder, lang=request.param)
    return request.param, folder


def test_sample_training_reaches_minimum_f1(corpus, tmp_path):
    """Only a minimum F1 is tested, since the results on this corpus depend on the seed. Benchmarks compare systems."""
    lang, folder = corpus
    config = ROOT / "configs" / ("sample.cfg" if lang == "zh" else "sample_en.cfg")
    overrides = {"paths.train": str(folder / "train.spacy"), "paths.dev": str(folder / "dev.spacy")}
    train(config, tmp_path, overrides=overrides)
    nlp = util.load_model(tmp_path / "model-best")
    assert nlp.evaluate(list(Corpus(folder / "test.spacy")(nlp)))["ents_f"] > 0.6
