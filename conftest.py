"""Small pipelines that many tests share."""

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

# spaCy and torch are imported where they are used: the process that only hands out tests does without them.
# Nor is garbage looked for until all is imported.
gc.disable()

# The same examples in every run, however slow the machine.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Nothing is fetched from anywhere. Libraries read this once, when they are imported.
os.environ["HF_HUB_OFFLINE"] = "1"

# transformers would import it, with pandas and SciPy, for what no test needs.
sys.modules["sklearn"] = None  # type: ignore[assignment]

# Messages without colours. wasabi reads it when a printer is made.
os.environ["WASABI_LOG_FRIENDLY"] = "1"

# Registries search the entry points of all packages for each name that is looked up: thousands of times in a test run.
# In groups they are found at once.
catalogue.AVAILABLE_ENTRY_POINTS = {
    group: catalogue.AVAILABLE_ENTRY_POINTS.select(group=group) for group in catalogue.AVAILABLE_ENTRY_POINTS.groups
}

# Whatever is packed or unpacked asks for all of its coders, for which all registries are gone through.
msgpack_encoders.get_all = cache(msgpack_encoders.get_all)
msgpack_decoders.get_all = cache(msgpack_decoders.get_all)

# Pipelines are made of the same few configs, and each time their text would be parsed again.
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

# Whoever is started in the background by a shell ignores Ctrl-C, which some tests are about.
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

    # The tests' tensors are tiny: more threads would spend their time waiting for each other.
    torch.set_num_threads(1)
    # What is imported stays: later searches for garbage leave it out.
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of research are for integration: the package does without it."""
    for item in items:
        if config.rootpath / "research" in item.path.parents:
            item.add_marker("integration")


@pytest.fixture(scope="session")
def saved() -> dict[str, Path]:
    """Trained pipelines on disk, one of each view."""
    from small_systems import trained

    return {name: trained(name) for name in ("tener", "characters")}


@pytest.fixture(scope="session")
def tok2vecs(tmp_path_factory):
    """The config of a small model of each architecture."""
    from small_systems import small_tok2vecs

    return small_tok2vecs(tmp_path_factory.mktemp("sources"))


@pytest.fixture
def three_threads():
    """Let torch compute on three threads, in place of the one of all tests."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random state."""
    import spacy
    import torch

    spacy.util.fix_random_seed(0)
    torch.manual_seed(0)


@pytest.fixture
def without_torch(monkeypatch):
    """Let other processes start as if torch were not installed: that takes a third of the time."""
    from command_line import without

    for name, value in without("torch", "transformers").items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def browser():
    """A browser that all tests of a process share; see tests/browser.py."""
    from browser import started

    with started() as window:
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
    """Make a pipeline with a tiny recogniser and let it learn its sentences by heart."""
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
