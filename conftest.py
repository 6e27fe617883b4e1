"""Settings of pytest, and fixtures that all tests share: small models, trained pipelines, and training functions."""

import gc
import os
import pickle
import signal
import sys
from functools import cache
from pathlib import Path
from typing import Any

import catalogue
import pytest
from confection import Config
from hypothesis import settings
from srsly.msgpack import msgpack_decoders, msgpack_encoders

# spaCy and torch are imported inside functions, since the controller process of pytest-xdist does not need them.
# Garbage collection is disabled until all imports are done, because it slows them down.
gc.disable()

# Use the same examples in every run, without a time limit for slow machines.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Prevent downloads. Libraries read this variable when they are imported.
os.environ["HF_HUB_OFFLINE"] = "1"

# transformers would import scikit-learn, with pandas and SciPy, for functions that the tests do not use.
sys.modules["sklearn"] = None  # type: ignore[assignment]

# Print messages without colours. wasabi reads this variable when a printer is created.
os.environ["WASABI_LOG_FRIENDLY"] = "1"

# For each name, catalogue searches the entry points of all packages, thousands of times in a test run. In a dictionary
# by group, they are found immediately.
catalogue.AVAILABLE_ENTRY_POINTS = {
    group: catalogue.AVAILABLE_ENTRY_POINTS.select(group=group) for group in catalogue.AVAILABLE_ENTRY_POINTS.groups
}

# srsly looks up all its encoders or decoders in the registry for each call.
msgpack_encoders.get_all = cache(msgpack_encoders.get_all)
msgpack_decoders.get_all = cache(msgpack_decoders.get_all)

# Most pipelines are created from a few configs. Cache the parsed configs, since parsing takes longer than copying.
from_str = Config.from_str


@cache
def parsed(text: str, interpolate: bool) -> bytes:
    return pickle.dumps(dict(from_str(Config(), text, interpolate=interpolate)))


def from_parsed(self: Config, text: str, *, interpolate: bool = True, **options: Any) -> Config:
    if any(options.values()):
        return from_str(self, text, interpolate=interpolate, **options)
    self.clear()
    self.update(pickle.loads(parsed(text, interpolate)))
    self.is_interpolated = interpolate
    return self


Config.from_str = from_parsed  # type: ignore[method-assign]

# A shell starts background processes with SIGINT ignored, but some tests send it.
signal.signal(signal.SIGINT, signal.default_int_handler)

TINY_TENER = {
    "@architectures": "spacy_tener.TENER.v1",
    "width": 16,
    "heads": 2,
    "dropout": 0.0,
    "embed": {
        "@architectures": "spacy_tener.CharEmbed.v1",
        "width": 16,
        "bigram_width": 8,
        "dropout": 0.0,
        "word_dropout": 0.0,
        "bigram_dropout": 0.0,
    },
}
TINY_MODEL = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": TINY_TENER}


def pytest_collection_finish() -> None:
    import torch

    # The tensors in tests are tiny, so additional threads would only wait for each other.
    torch.set_num_threads(1)
    # Exclude all imported objects from later garbage collections.
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests of research as integration tests, since the package does not depend on research."""
    for item in items:
        if config.rootpath / "research" in item.path.parents:
            item.add_marker("integration")


@pytest.fixture(scope="session")
def saved() -> dict[str, Path]:
    """Trained pipelines on disk, one for tokens and one with `view = "characters"`."""
    from small_systems import trained

    return {name: trained(name) for name in ("tener", "characters")}


@pytest.fixture(scope="session")
def tok2vecs(tmp_path_factory):
    """Small configs of all architectures."""
    from small_systems import small_tok2vecs

    return small_tok2vecs(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def three_threads():
    """Run torch on three threads, instead of one as in other tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded():
    """Set the same seed before every test."""
    import spacy
    import torch

    spacy.util.fix_random_seed(0)
    torch.manual_seed(0)


@pytest.fixture
def without_torch(monkeypatch):
    """Hide torch and transformers from other processes, which then start in a third of the time."""
    from command_line import hide_packages

    for name, value in hide_packages("torch", "transformers").items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def browser():
    """A browser that all tests in a process share, see tests/browser.py."""
    from browser import open_browser

    with open_browser() as window:
        yield window


@pytest.fixture
def tiny_model():
    return TINY_MODEL


@pytest.fixture
def sentences():
    from small_systems import TEXTS

    return TEXTS[:4]


@pytest.fixture
def make_examples(sentences):
    from spacy.training import Example

    def make(nlp, data=sentences):
        return [Example.from_dict(nlp.make_doc(text), {"entities": entities}) for text, entities in data]

    return make


@pytest.fixture
def train(sentences, make_examples):
    """Create a pipeline with a tiny model, and overfit it to some sentences."""
    import spacy
    from small_systems import learn

    def train_pipeline(data=sentences, *, lang="zh", nlp=None, steps=60, name="tener_ner", **config):
        nlp = nlp or spacy.blank(lang)
        if name not in nlp.pipe_names:
            nlp.add_pipe("tener_ner", name=name, config={"model": TINY_MODEL, **config})
        learn(nlp, make_examples(nlp, data), steps=steps)
        return nlp

    return train_pipeline


@pytest.fixture
def entities_of():
    def entities(doc):
        return [(ent.start_char, ent.end_char, ent.label_) for ent in doc.ents]

    return entities
