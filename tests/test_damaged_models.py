"""Damaged model files: loading raises a clear error, or the predictions are unchanged, with limited time and memory."""

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

DAMAGES_PER_TEST = [3, pytest.param(1000, marks=pytest.mark.slow)]


class SavedComponent:
    """The component of a trained pipeline on disk, and an untrained component that can load it."""

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
        """Load a new component with the given content of the model file."""
        (self.path / "model").write_bytes(data)
        return copy.deepcopy(self.fresh, {id(self.vocab): self.vocab}).from_disk(self.path)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return {kind: SavedComponent(kind, tmp_path_factory.mktemp(kind)) for kind in KINDS}


def load_error(model, data):
    """Return the error message of loading this content, or None if the emissions of the component are unchanged."""
    with limited_resources():
        try:
            pipe = model.load(data)
        except (ValueError, OSError) as error:
            message = str(error)
            missing = [part for part in ("'tener_ner'", str(model.path), "estore") if part not in message]
            assert not missing, message
            assert len(message) < 3000, message[:3000]
            return message
    for emissions, expected in zip(pipe.model.predict(model.docs), model.emissions, strict=True):
        np.testing.assert_array_equal(emissions, expected)
    return None


needs_resource_limits = pytest.mark.skipif(
    not hasattr(os, "fork") or not Path("/proc/self/statm").exists(), reason="Linux"
)


@needs_resource_limits
@pytest.mark.parametrize("times", DAMAGES_PER_TEST)
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_file_raises_error_or_predicts_the_same(saved, kind, damage, times):
    rng = random.Random(f"{kind} {damage.__name__}")
    errors = [load_error(saved[kind], damage(saved[kind].data, rng)) for _ in range(times)]
    assert any(errors)


@needs_resource_limits
@pytest.mark.parametrize("kinds", pairwise([*SYSTEMS, "tener"]), ids="-".join)
def test_file_of_other_architecture_raises_error(saved, kinds):
    first, second = (saved[kind] for kind in kinds)
    assert load_error(first, second.data) is not None


@needs_resource_limits
@pytest.mark.parametrize("kind", KINDS)
def test_misspelled_vocabulary_key_raises_error(saved, kind):
    """Thinc would load it as an additional attribute, and the embedder's vocabulary would be empty."""
    # A converted transformer's vocabulary is a file of its encoder.
    name, typo = (b"\xa8features", b"\xa8featurbs") if kind == "converted" else (b"vocabulary", b"vocabulbry")
    assert load_error(saved[kind], saved[kind].data.replace(name, typo, 1)) is not None


def positions_without_checksum(data):
    """Return the positions in a model file outside all parts that have their own checksum."""
    message = srsly.msgpack_loads(data)
    parts = [part for parts in (*message["shims"], *map(dict.values, message["attrs"])) for part in parts]
    starts = [data.index(part) for part in parts]
    covered = {
        position for part, start in zip(parts, starts, strict=True) for position in range(start, start + len(part))
    }
    return [position for position in range(len(data)) if position not in covered]


@needs_resource_limits
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_bit_flips_outside_checksums_raise_error_or_predict_the_same(saved, kind):
    data = saved[kind].data
    for position in positions_without_checksum(data):
        for bit in range(8):
            load_error(saved[kind], data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])


@pytest.mark.parametrize("kind", KINDS)
def test_undamaged_file_is_loaded(saved, kind):
    assert load_error(saved[kind], saved[kind].data) is None
