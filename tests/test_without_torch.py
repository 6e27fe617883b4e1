"""Pipelines load and predict without torch, and functions that need torch raise errors that say so."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import spacy
from command_line import hide_packages
from small_systems import KINDS, TEXTS, UNSEEN, trained

from spacy_tener.nn.shim import TorchShim

pytestmark = pytest.mark.integration


def run(code, *arguments, torch=False):
    """Run a script in a process in which torch cannot be imported, unless `torch` is set. Return its output."""
    command = [sys.executable, "-c", f"import json, sys, spacy\n{code}", *map(str, arguments)]
    environment = {**os.environ, **hide_packages("transformers", *(() if torch else ("torch",)))}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


PREDICT = """
answers = {}
texts = json.loads(sys.argv[1])
for path in map(pathlib.Path, sys.argv[2:]):
    nlp = spacy.load(path)
    ner = nlp.get_pipe("tener_ner")
    docs = list(nlp.pipe(texts, n_process=2 if path.name in ("flat", "converted") else 1))
    long = nlp("".join(texts) * 20)
    copy = spacy.blank(nlp.lang, config=nlp.config).from_bytes(nlp.to_bytes())
    sums = [emissions.sum(axis=1).tolist() for emissions in ner.model.predict([nlp.make_doc(text) for text in texts])]
    decodings = list(ner.decode(docs))
    answers[path.name] = {
        "ents": [[[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents] for doc in docs],
        "copied": [[[ent.start_char, ent.end_char, ent.label_] for ent in copy(text).ents] for text in texts],
        "emissions": sums,
        "long": len(long.ents),
        "probabilities": [entity.probability for decoding in decodings for entity in decoding.entities],
        "k_best": [len(decoding.k_best(3)) for decoding in decodings],
        "entropy": [decoding.entropy for decoding in decodings],
    }
print(json.dumps(answers))
"""


def test_predictions_match_those_with_torch(monkeypatch):
    texts = [*(text for text, _ in TEXTS), UNSEEN]
    answers = json.loads(run("import pathlib\n" + PREDICT, json.dumps(texts), *map(trained, KINDS)))
    assert [*answers] == KINDS
    monkeypatch.setattr(TorchShim, "predicts_with_numpy", lambda shim, ops: False)
    for kind, found in answers.items():
        nlp = spacy.load(trained(kind))
        ents = [[[ent.start_char, ent.end_char, ent.label_] for ent in doc.ents] for doc in nlp.pipe(texts)]
        assert found["ents"] == found["copied"] == ents
        emissions = nlp.get_pipe("tener_ner").model.predict([nlp.make_doc(text) for text in texts])
        for sums, rows in zip(found["emissions"], emissions, strict=True):
            assert sums == pytest.approx(rows.sum(axis=1), rel=1e-3, abs=1e-3)
        assert all(0 < probability <= 1 for probability in found["probabilities"])
        assert all(1 <= n <= 3 for n in found["k_best"])
        assert all(value >= 0 for value in found["entropy"])
        assert found["long"] > 0


def test_explanations_and_service_work_without_torch():
    code = """
from spacy_tener.explain import explain
from spacy_tener.serve import make_app
for path in sys.argv[2:]:
    nlp = spacy.load(path)
    found = explain(nlp, sys.argv[1])
    (text,) = found.texts
    assert make_app({"zh": nlp})
    assert found.to_html()
    print(json.dumps([len(text.entities), len(text.entities[0].attributions), found.notes]))
"""
    kinds = {"tener": "is encoded as an unknown word or character", "converted": "the transformer’s mask token"}
    lines = run(code, TEXTS[0][0], *map(trained, kinds)).splitlines()
    for line, noted in zip(lines, kinds.values(), strict=True):
        n_entities, n_attributions, notes = json.loads(line)
        assert n_entities > 0
        assert n_attributions > 0
        assert any(noted in note for note in notes)


def test_training_error_suggests_installing_torch():
    code = """
from spacy.training import Example
nlp = spacy.load(sys.argv[1])
example = Example.from_dict(nlp.make_doc("上海"), {"entities": [(0, 2, "GPE")]})
blank = spacy.blank("zh")
blank.add_pipe("tener_ner")
for learn in (lambda: nlp.update([example], sgd=nlp.resume_training()), lambda: blank.initialize(lambda: [example])):
    try:
        learn()
    except ImportError as error:
        print(error)
"""
    messages = run(code, trained("tener")).splitlines()
    assert len(messages) == 2
    assert all("pip install torch" in message for message in messages)


def test_prediction_does_not_import_installed_torch():
    """Thinc imports torch if it is installed, so only the imports of this package's modules are checked."""
    code = """
import torch
for path in sys.argv[1:]:
    nlp = spacy.load(path)
    next(nlp.get_pipe("tener_ner").decode([nlp("王小明去了上海")])).entities
print(*(name for name, module in sys.modules.items() if name.startswith("spacy_tener") and "torch" in vars(module)))
print("spacy_tener.nn.backend_torch" in sys.modules)
"""
    assert run(code, trained("tener"), trained("mect"), torch=True).split() == ["False"]


USE_COMPONENT = """
import spacy
nlp = spacy.blank("zh")
tok2vec = {"@architectures": "spacy_tener.MECT.v1", "width": 16}
model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}
nlp.add_pipe("tener_ner", config={"model": model}).add_label("PER")
try:
    nlp.add_pipe("tener_ner", name="wrong", config={"model": {"tok2vec": {**tok2vec, "width": 15}}})
except ValueError as error:
    print("width must be" in str(error))
"""


STRIP_DOCSTRINGS = """
from importlib.machinery import SourceFileLoader
as_usual = SourceFileLoader.get_code
def get_code(loader, name):
    if name.partition(".")[0] != "spacy_tener":
        return as_usual(loader, name)
    path = loader.get_filename(name)
    return compile(loader.get_data(path), path, "exec", dont_inherit=True, optimize=2)
SourceFileLoader.get_code = get_code
"""
CHECK_STRIPPED = """
import spacy_tener.validation
assert spacy_tener.validation.__doc__ is None
"""


def test_package_works_without_its_docstrings() -> None:
    """This is faster than `python -OO`, which compiles all imported modules."""
    assert run(STRIP_DOCSTRINGS + USE_COMPONENT + CHECK_STRIPPED).strip() == "True"


@pytest.mark.slow
def test_package_works_with_python_option_oo() -> None:
    result = subprocess.run([sys.executable, "-OO", "-c", USE_COMPONENT], capture_output=True, text=True, timeout=120)
    assert result.stdout.strip() == "True", result.stderr
