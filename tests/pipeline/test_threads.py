"""Threads of a training step: one for a small model, and torch's number is as before after it."""

from __future__ import annotations

import pytest
import torch

from spacy_tener.layers import devices
from spacy_tener.layers.transformer import TransformerEncoder


@pytest.fixture
def seen_threads(monkeypatch):
    """The numbers of threads that the encoder computes with, where torch has chosen three."""
    numbers = []
    forward = TransformerEncoder.forward

    def counted(encoder, x, lengths):
        numbers.append(torch.get_num_threads())
        x.register_hook(lambda gradient: numbers.append(torch.get_num_threads()))
        return forward(encoder, x, lengths)

    monkeypatch.setattr(TransformerEncoder, "forward", counted)
    monkeypatch.setattr(devices, "count_cores", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    return numbers


@pytest.mark.parametrize("step", ["update", "rehearse"])
def test_a_small_model_learns_on_one_thread(step, learned, make_examples, seen_threads, three_threads):
    nlp = learned()
    optimizer = nlp.resume_training()
    seen_threads.clear()
    getattr(nlp, step)(make_examples(nlp), sgd=optimizer)
    assert set(seen_threads) == {1}
    assert torch.get_num_threads() == 3


def test_a_step_that_fails_leaves_torch_its_threads(learned, make_examples, monkeypatch, three_threads):
    nlp = learned()

    def fail(encoder, x, lengths):
        raise RuntimeError("no memory")

    optimizer = nlp.resume_training()
    monkeypatch.setattr(TransformerEncoder, "forward", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        nlp.update(make_examples(nlp), sgd=optimizer)
    assert torch.get_num_threads() == 3
