"""Small models train and predict on one thread. Afterwards, the previous number of threads is restored."""

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
def training_threads(monkeypatch):
    """Record the number of threads in each call of the torch encoder, on a machine with three cores."""
    thread_counts = []
    forward = TransformerEncoder.forward

    def record_threads(encoder, x, lengths):
        thread_counts.append(torch.get_num_threads())
        x.register_hook(lambda gradient: thread_counts.append(torch.get_num_threads()))
        return forward(encoder, x, lengths)

    monkeypatch.setattr(TransformerEncoder, "forward", record_threads)
    monkeypatch.setattr(devices, "count_cores", lambda: 3)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("MKL_NUM_THREADS", raising=False)
    return thread_counts


@pytest.mark.parametrize("step", ["update", "rehearse"])
def test_small_model_trains_on_one_thread(step, learned, make_examples, training_threads, three_threads):
    nlp = learned()
    optimizer = nlp.resume_training()
    training_threads.clear()
    getattr(nlp, step)(make_examples(nlp), sgd=optimizer)
    assert set(training_threads) == {1}
    assert torch.get_num_threads() == 3


def test_failed_update_restores_torch_threads(learned, make_examples, monkeypatch, three_threads):
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
def three_numpy_threads(monkeypatch):
    """Set three NumPy threads, the default on a machine with three cores."""
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(processes, "count_physical_cores", lambda: 3)
    with threadpool_limits(3, user_api="blas"):
        yield


@pytest.fixture
def prediction_threads(monkeypatch):
    """Record the number of threads in each call of the NumPy encoder."""
    thread_counts = []
    predict = transformer.TransformerEncoder.__call__

    def record_threads(encoder, x, lengths):
        thread_counts.extend(numpy_threads())
        return predict(encoder, x, lengths)

    monkeypatch.setattr(transformer.TransformerEncoder, "__call__", record_threads)
    return thread_counts


def test_numpy_predicts_on_one_thread(learned, three_numpy_threads, prediction_threads):
    list(learned().pipe(["张三住在北京", "李四"]))
    assert set(prediction_threads) == {1}
    assert numpy_threads() == {3}


def test_thinc_predict_uses_one_thread(learned, three_numpy_threads, prediction_threads):
    nlp = learned()
    nlp.get_pipe("tener_ner").model.predict([nlp.make_doc("张三住在北京")])
    assert set(prediction_threads) == {1}


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"])
def test_thread_count_in_environment_is_respected(learned, three_numpy_threads, prediction_threads, monkeypatch, name):
    monkeypatch.setenv(name, "3")
    learned()("张三住在北京")
    assert set(prediction_threads) == {3}


def test_thread_count_below_core_count_is_respected(learned, three_numpy_threads, prediction_threads):
    with threadpool_limits(2, user_api="blas"):
        learned()("张三住在北京")
        assert numpy_threads() == {2}
    assert set(prediction_threads) == {2}


def test_last_predicting_thread_restores_numpy_threads(three_numpy_threads):
    may_finish, is_inside = threading.Event(), threading.Event()

    def predict():
        with one_thread:
            is_inside.set()
            may_finish.wait(60)

    thread = threading.Thread(target=predict)
    with one_thread:
        thread.start()
        is_inside.wait(60)
    assert numpy_threads() == {1}
    may_finish.set()
    thread.join()
    assert numpy_threads() == {3}


def test_failed_prediction_restores_numpy_threads(learned, three_numpy_threads, monkeypatch):
    def fail(encoder, x, lengths):
        raise RuntimeError("no memory")

    monkeypatch.setattr(transformer.TransformerEncoder, "__call__", fail)
    with pytest.raises(RuntimeError, match="no memory"):
        learned()("张三住在北京")
    assert numpy_threads() == {3}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Needs fork.")
def test_process_forked_during_prediction_can_predict(three_numpy_threads):
    with one_thread:
        child = os.fork()
        if not child:
            with one_thread:
                os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_thread_count_set_during_prediction_is_kept(three_numpy_threads):
    with one_thread:
        threadpool_limits(2, user_api="blas")
    assert numpy_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Needs fork.")
@pytest.mark.parametrize("forks_inside", [False, True])
def test_fork_during_prediction_in_other_thread_restores_threads(three_numpy_threads, forks_inside):
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
            inside_again = numpy_threads() == {1}
        os._exit(0 if inside and inside_again and numpy_threads() == {3} else 1)
    has_forked.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert numpy_threads() == {3}
