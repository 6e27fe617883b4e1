"""Train on a GPU and predict on a CPU, and the reverse. `make test-gpu` needs a CUDA device and cupy."""

import os
import subprocess
import sys

import pytest
import spacy
from thinc.api import set_active_gpu, use_ops
from thinc.util import has_cupy_gpu

pytestmark = pytest.mark.gpu

PREDICT = """
import sys, spacy
nlp = spacy.load(sys.argv[1])
for doc in nlp.pipe(sys.argv[2:]):
    print([(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents])
"""


@pytest.fixture
def gpu():
    assert has_cupy_gpu, "make test-gpu needs a CUDA device and cupy: pip install '.[cuda12x]' or '.[cuda13x]'"
    set_active_gpu(0)
    with use_ops("cupy"):
        yield


@pytest.fixture
def trained(gpu, train):
    return train()


def test_pipeline_trained_on_gpu_predicts_on_cpu(trained, sentences, tmp_path):
    trained.to_disk(tmp_path / "pipeline")
    texts = [text for text, _ in sentences]
    command = [sys.executable, "-c", PREDICT, str(tmp_path / "pipeline"), *texts]
    without_gpu = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    printed = subprocess.run(command, capture_output=True, text=True, check=True, env=without_gpu)
    assert printed.stdout.splitlines() == [str(entities) for _, entities in sentences]


def test_pipeline_trained_on_cpu_predicts_on_gpu(train, sentences, entities_of, tmp_path):
    assert has_cupy_gpu
    with use_ops("numpy"):
        train().to_disk(tmp_path)
    with use_ops("cupy"):
        nlp = spacy.load(tmp_path)
        assert all(entities_of(nlp(text)) == entities for text, entities in sentences)
