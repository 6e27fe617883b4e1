"""Threads of a training step, one for a small model, and of a prediction, one: the numbers are as before after it."""

from __future__ import annotations

import os
import threading
from contextlib import nullcontext

import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from spacy_tener import processes
from spacy_tener.architectures.tener import tener_numpy as transformer
from spacy_tener.architectures.tener.tener_torch import TransformerEncoder
from spacy_tener.nn import devices_torch as devices
from spacy_tener.processes import one_thread


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


def numpy_threads():
    return {library["num_threads"] for library in threadpool_info() if "numpy.libs" in library["filepath"]}


@pytest.fixture
def numpys_own_threads(monkeypatch):
    """Let three threads be what NumPy chose by itself."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processes, "count_physical_cores", lambda: 3)
    with threadpool_limits(3, user_api="blas"):
        yield


@pytest.fixture
def predicting_threads(monkeypatch):
    """The numbers of threads that the encoder predicts with."""
    numbers = []
    predict = transformer.TransformerEncoder.__call__

    def counted(encoder, x, lengths):
        numbers.extend(numpy_threads())
        return predict(encoder, x, lengths)

    monkeypatch.setattr(transformer.TransformerEncoder, "__call__", counted)
    return numbers


def test_numpy_predicts_on_one_thread(learned, numpys_own_threads, predicting_threads):
    list(learned().pipe(["张三住在北京", "李四"]))
    assert set(predicting_threads) == {1}
    assert numpy_threads() == {3}


def test_a_layer_inside_another_library_s_predicts_on_one_thread(learned, numpys_own_threads, predicting_threads):
    nlp = learned()
    nlp.get_pipe("tener_ner").model.predict([nlp.make_doc("张三住在北京")])
    assert set(predicting_threads) == {1}


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_a_number_in_the_environment_is_the_user_s(learned, numpys_own_threads, predicting_threads, monkeypatch, name):
    monkeypatch.setenv(name, "3")
    learned()("张三住在北京")
    assert set(predicting_threads) == {3}


def test_a_smaller_number_than_the_cores_is_the_user_s(learned, numpys_own_threads, predicting_threads):
    with threadpool_limits(2, user_api="blas"):
        learned()("张三住在北京")
        assert numpy_threads() == {2}
    assert set(predicting_threads) == {2}


def test_the_last_thread_that_predicts_restores_numpy_s_number(numpys_own_threads):
    first_left, is_inside = threading.Event(), threading.Event()

    def predict():
        with one_thread:
            is_inside.set()
            first_left.wait(60)

    thread = threading.Thread(target=predict)
    with one_thread:
        thread.start()
        is_inside.wait(60)
    assert numpy_threads() == {1}
    first_left.set()
    thread.join()
    assert numpy_threads() == {3}


def test_a_prediction_that_fails_leaves_numpy_its_threads(learned, numpys_own_threads, monkeypatch):
    def fail(encoder, x, lengths):
        raise RuntimeError("no memory")

    monkeypatch.setattr(transformer.TransformerEncoder, "__call__", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        learned()("张三住在北京")
    assert numpy_threads() == {3}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Needs fork.")
def test_a_fork_in_the_middle_of_a_prediction_can_predict(numpys_own_threads):
    with one_thread:
        child = os.fork()
        if not child:
            with one_thread:
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_a_number_that_the_user_sets_during_a_prediction_stays(numpys_own_threads):
    with one_thread:
        threadpool_limits(2, user_api="blas")
    assert numpy_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Needs fork.")
@pytest.mark.parametrize("forks_inside", [False, True])
def test_a_fork_while_another_thread_predicts_has_its_threads_again(numpys_own_threads, forks_inside):
    is_inside, has_forked = threading.Event(), threading.Event()

    def predict():
        with one_thread:
            is_inside.set()
            has_forked.wait(60)

    thread = threading.Thread(target=predict)
    thread.start()
    is_inside.wait(60)
    with one_thread if forks_inside else nullcontext():
        child = os.fork()
        if not child:
            inside = numpy_threads() == ({1} if forks_inside else {3})
    if not child:
        with one_thread:
            again = numpy_threads() == {1}
        os._exit(0 if inside and again and numpy_threads() == {3} else 1)
    has_forked.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert numpy_threads() == {3}
