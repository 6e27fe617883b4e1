"""Training and prediction on an emulated GPU: the results are those of the host, and nothing mixes with its memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
import torch
from emulated_device import DEVICE, XP, Record, emulated_device, recorded
from small_systems import TEXTS, examples_of, pipeline
from spacy.tokens import Span
from spacy.training import Example
from thinc.api import use_ops
from tiny_transformer import save_tiny_transformer

from spacy_tener.layers.dense import Linear
from spacy_tener.optim.optimizers import SGD, Adam

SYSTEMS = ["TENER", "FLAT", "FLAT_ATSSA", "MECT", "GRN"]


class Run(NamedTuple):
    losses: list[float]
    emissions: np.ndarray
    learn: Record
    optimizer: Record
    predict: Record

    @property
    def mixed(self):
        return self.learn.mixed + self.optimizer.mixed + self.predict.mixed


def run(tok2vec, optimizer) -> Run:
    """Three steps, of which the last is recorded, and a predicted batch."""
    nlp = pipeline(tok2vec)
    pipe = nlp.get_pipe("tener_ner")
    examples = examples_of(nlp)
    nlp.initialize(lambda: examples)
    losses = []
    for _ in range(3):
        with recorded() as learn:
            losses.append(pipe.update(examples)["tener_ner"])
        with recorded() as step:
            pipe.finish_update(optimizer)
    with recorded() as predict:
        docs = list(nlp.pipe([text for text, _ in TEXTS]))
    emissions = np.concatenate([pipe.model.ops.to_numpy(scores) for scores in pipe.model.predict(docs)])
    return Run(losses, emissions, learn, step, predict)


@pytest.mark.parametrize("host_arrays", [False, True], ids=["CUDA", "Apple"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_nothing_of_the_host_mixes_with_the_device_and_training_does_what_it_does_on_the_host(
    name, host_arrays, tok2vecs
):
    expected = run(tok2vecs[name], SGD(0.01))
    with emulated_device(host_arrays=host_arrays):
        found = run(tok2vecs[name], SGD(0.01))
    assert not found.mixed
    assert found.losses == pytest.approx(expected.losses, rel=1e-4)
    assert found.losses[-1] < found.losses[0]
    np.testing.assert_allclose(found.emissions, expected.emissions, atol=1e-4)


@pytest.mark.parametrize("host_arrays", [False, True], ids=["CUDA", "Apple"])
def test_windows_masks_partial_annotation_growth_and_rehearsal_mix_nothing_either(host_arrays, tok2vecs):
    with emulated_device(host_arrays=host_arrays), recorded() as record:
        nlp = pipeline(tok2vecs["TENER"], window=20, overlap=4, incorrect_spans_key="incorrect")
        examples = examples_of(nlp)
        sgd = nlp.initialize(lambda: examples)
        long, partial = "张三 在北京工作 李四" * 5, "李四在北京"
        examples += examples_of(nlp, [(long, [(0, 2, "PER")])])
        reference = nlp.make_doc(partial)
        reference.set_ents([Span(reference, 0, 2, "PER")], default="missing")
        reference.spans["incorrect"] = [Span(reference, 3, 5, "PER")]
        examples.append(Example(nlp.make_doc(partial), reference))
        nlp.update(examples, sgd=sgd)
        nlp.get_pipe("tener_ner").add_label("LOC")
        examples += examples_of(nlp, [("新词都在这里", [(0, 1, "LOC")])])
        nlp.update(examples, sgd=sgd)
        nlp.rehearse(examples, sgd=nlp.resume_training())
        assert [len(doc) for doc in nlp.pipe([long, "", partial])] == [45, 0, 5]
        shims = [shim for node in nlp.get_pipe("tener_ner").model.walk() for shim in node.shims]
        assert {shim.device for shim in shims} == {DEVICE}
    assert not record.mixed


@pytest.mark.parametrize("host_arrays", [False, True], ids=["CUDA", "Apple"])
def test_a_model_stays_on_its_device_where_the_thread_knows_of_none(host_arrays, tok2vecs):
    with emulated_device(host_arrays=host_arrays), recorded() as record:
        nlp = pipeline(tok2vecs["TENER"])
        examples = examples_of(nlp)
        sgd = nlp.initialize(lambda: examples)
        # Thinc's backend is a context variable: a new thread has numpy's.
        with use_ops("numpy"):
            examples += examples_of(nlp, [("许多新字在这篇文章里", [])])
            nlp.get_pipe("tener_ner").add_label("LOC")
            nlp.update(examples, sgd=sgd)
            assert len(nlp(TEXTS[0][0]))
        assert {shim.device for node in nlp.get_pipe("tener_ner").model.walk() for shim in node.shims} == {DEVICE}
    assert not record.mixed


@pytest.mark.parametrize("host_arrays", [False, True], ids=["CUDA", "Apple"])
@pytest.mark.parametrize("frozen", [False, True], ids=["learning", "frozen"])
def test_a_transformer_beside_other_embedders_mixes_nothing_and_its_features_stay(
    frozen, host_arrays, tok2vecs, tmp_path
):
    settings = {"name": str(save_tiny_transformer(tmp_path)), "frozen": frozen, "mixed_precision": "gpu"}
    transformer = {"@architectures": "spacy_tener.TransformerEmbed.v1", **settings}
    embed = {"@architectures": "spacy_tener.JoinEmbed.v1", "first": tok2vecs["TENER"]["embed"], "second": transformer}
    with emulated_device(host_arrays=host_arrays):
        found = run({**tok2vecs["TENER"], "embed": embed}, Adam(0.01))
    assert not found.mixed
    assert found.losses[-1] < found.losses[0]
    if frozen and not host_arrays:
        # Nothing but the plan of the batch goes up, and nothing but the emissions come down.
        assert found.learn.syncs.total() <= 1


def spoil(monkeypatch, change):
    """Let every linear layer change its input first."""
    linear = Linear.forward

    def spoilt(self, x):
        return linear(self, change(x))

    monkeypatch.setattr(Linear, "forward", spoilt)


def test_a_tensor_of_the_host_among_the_device_s_is_found(tok2vecs, monkeypatch):
    spoil(monkeypatch, lambda x: x + torch.zeros(x.shape[1]))
    with emulated_device():
        found = run(tok2vecs["TENER"], SGD(0.01))
    assert any("add" in line for line in found.learn.mixed)
    assert any("add" in line for line in found.predict.mixed)


WAITS = {
    "item": lambda x: x * x.sum().sign().abs().item(),
    "bool": lambda x: x if bool((x == x).all()) else x + 1,
    "mask": lambda x: x + x[x.isnan()].sum(),
    "nonzero": lambda x: x + 0.0 * x.isnan().nonzero().sum(),
    "copy to the host": lambda x: x + x.cpu().sum() * 0.0,
    "blocking upload": lambda x: x + torch.zeros(x.shape[1]).to(x.device),
    "repeats": lambda x: x.repeat_interleave(torch.ones(len(x), dtype=torch.long, device=x.device), 0),
}


@pytest.mark.parametrize("change", WAITS.values(), ids=WAITS.keys())
def test_what_waits_for_the_device_is_found(change):
    with emulated_device():
        x = torch.zeros(3, 2).to(DEVICE)
        with recorded() as record:
            assert torch.equal(change(x).cpu(), x.cpu())
    assert record.syncs.total() > 2, "the two copies of the check, and what was planted"


def test_arrays_of_the_device_refuse_numpy():
    with emulated_device():
        array = XP.zeros((2, 3), dtype="f")
        for mix in (
            np.asarray,
            torch.from_numpy,
            lambda x: x + np.ones(3),
            lambda x: np.concatenate([x, np.ones((1, 3))]),
        ):
            with pytest.raises(TypeError):
                mix(array)
        with recorded() as record:
            float(XP.exp(array).sum())
        assert record.counts() == (2, 1, 1)
