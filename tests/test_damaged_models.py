"""A damaged model file gives one clear error, or predicts what it predicted: nothing else, and soon."""

import copy
import os
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import spacy
import srsly
from damage import DAMAGES, limited_resources
from small_systems import KINDS, SYSTEMS, TEXTS, UNSEEN, trained

TIMES = [3, pytest.param(1000, marks=pytest.mark.slow)]


class Saved:
    """The component of a trained pipeline, and a fresh one to load it."""

    def __init__(self, kind, path):
        nlp = spacy.load(trained(kind))
        self.docs = [nlp.make_doc(text) for text in (*(text for text, _ in TEXTS), UNSEEN)]
        self.vocab = nlp.vocab
        config = {**nlp.get_pipe_config("tener_ner")}
        del config["factory"]
        self.fresh = spacy.blank(nlp.lang, vocab=self.vocab).add_pipe("tener_ner", config=config)
        self.path = path / "tener_ner"
        nlp.get_pipe("tener_ner").to_disk(self.path)
        self.data = (self.path / "model").read_bytes()
        self.emissions = nlp.get_pipe("tener_ner").model.predict(self.docs)

    def load(self, data):
        """A fresh component with these bytes as its model file."""
        (self.path / "model").write_bytes(data)
        return copy.deepcopy(self.fresh, {id(self.vocab): self.vocab}).from_disk(self.path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return {kind: Saved(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def outcome(model, data):
    """The message of loading these bytes, or None where everything is as it was."""
    with limited_resources():
        try:
            pipe = model.load(data)
        except (ValueError, OSError) as error:
            message = str(error)
            missing = [part for part in ("'tener_ner'", str(model.path), "estore") if part not in message]
            assert not missing, message
            assert len(message) < 3000, message[:3000]
            return message
    for now, before in zip(pipe.model.predict(model.docs), model.emissions, strict=True):
        np.testing.assert_array_equal(now, before)
    return None


needs_limits = pytest.mark.skipif(not hasattr(os, "fork") or not Path("/proc/self/statm").exists(), reason="Linux")


@needs_limits
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damage_is_told_or_does_not_matter(saved, kind, damage, times):
    rng = random.Random(f"{kind} {damage.__name__}")
    errors = [outcome(saved[kind], damage(saved[kind].data, rng)) for _ in range(times)]
    assert any(errors)


@needs_limits
@pytest.mark.parametrize("kinds", pairwise([*SYSTEMS, "tener"]), ids="-".join)
def test_the_file_of_another_architecture_is_told(saved, kinds):
    first, second = (saved[kind] for kind in kinds)
    assert outcome(first, second.data) is not None


@needs_limits
@pytest.mark.parametrize("kind", KINDS)
def test_a_vocabulary_under_another_name_is_told(saved, kind):
    """Thinc takes it for one attribute more, and the embedder's own would be empty."""
    # A converted transformer's vocabulary is a file of its encoder.
    name, typo = (b"\xa8features", b"\xa8featurbs") if kind == "converted" else (b"vocabulary", b"vocabulbry")
    assert outcome(saved[kind], saved[kind].data.replace(name, typo, 1)) is not None


def without_checksum(data):
    """The places of a model file that are in no part which has a checksum of its own."""
    message = srsly.msgpack_loads(data)
    parts = [part for parts in (*message["shims"], *map(dict.values, message["attrs"])) for part in parts]
    starts = [data.index(part) for part in parts]
    covered = {place for part, start in zip(parts, starts, strict=True) for place in range(start, start + len(part))}
    return [place for place in range(len(data)) if place not in covered]


@needs_limits
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_bit_outside_of_the_checksums(saved, kind):
    data = saved[kind].data
    for place in without_checksum(data):
        for bit in range(8):
            outcome(saved[kind], data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_damaged_is_loaded(saved, kind):
    assert outcome(saved[kind], saved[kind].data) is None
