"""Sparse steps: used rows are updated like a dense table, and other rows are not changed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from thinc.api import SGD, Adam, RAdam

from spacy_tener.optim.optimizers import SGD as MomentumSGD  # noqa: N811 - Thinc has a class of that name
from spacy_tener.optim.updates_torch import apply_row_gradient

HEIGHT, WIDTH = 6, 3
KEY = (7, "tables.unigram")
ALL = list(range(HEIGHT))

THINC = {
    "Adam": lambda **settings: Adam(0.01, grad_clip=0.0, **settings),
    "Adam with clipping": lambda **settings: Adam(0.01, grad_clip=0.5, **settings),
    "Adam with weight decay": lambda **settings: Adam(0.01, L2=0.1, **settings),
    "Adam with L2": lambda **settings: Adam(0.01, L2=0.1, L2_is_weight_decay=False, **settings),
    "RAdam": lambda **settings: RAdam(0.01, grad_clip=0.0, **settings),
    "SGD": lambda **settings: SGD(0.01, grad_clip=0.0, **settings),
}
every_optimizer = pytest.mark.parametrize("make", THINC.values(), ids=THINC.keys())


def table(height=HEIGHT, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).normal(size=(height, WIDTH)).astype("f"))


def gradients(n_steps, n_rows=HEIGHT):
    return np.random.default_rng(1).normal(size=(n_steps, n_rows, WIDTH)).astype("f")


def sparse(rows, values, height=HEIGHT):
    indices = torch.tensor([rows], dtype=torch.int64)
    return torch.sparse_coo_tensor(
        indices, torch.from_numpy(values.copy()), (height, WIDTH), check_invariants=True
    ).coalesce()


def step(optimizer, weights, rows, values):
    apply_row_gradient(optimizer, KEY, weights, sparse(rows, values, len(weights)))


@every_optimizer
@pytest.mark.parametrize("rows", [ALL, [1, 4]], ids=["all", "some"])
def test_sparse_steps_equal_dense_steps_of_used_rows(rows, make):
    sparse_table, dense_table = table(), table().numpy()[rows].copy()
    lazy, dense = make(use_averages=False), make(use_averages=False)
    for gradient in gradients(8, len(rows)):
        step(lazy, sparse_table, rows, gradient)
        dense_table, _ = dense(KEY, dense_table, gradient.copy())
    np.testing.assert_allclose(sparse_table.numpy()[rows], dense_table, rtol=1e-5, atol=1e-7)


@every_optimizer
def test_unused_rows_and_momentum_stay_unchanged(make):
    sparse_table, optimizer = table(), make(use_averages=False)
    first, second = gradients(2)
    step(optimizer, sparse_table, [0, 1, 2], first[:3])
    before, moments = sparse_table.clone(), [copied(state) for state in (optimizer.mom1, optimizer.mom2)]
    step(optimizer, sparse_table, [2, 5], second[:2])
    assert torch.equal(sparse_table[[0, 1, 3, 4]], before[[0, 1, 3, 4]])
    assert (sparse_table[[2, 5]] != before[[2, 5]]).all()
    for state, earlier in zip((optimizer.mom1, optimizer.mom2), moments, strict=True):
        assert state.keys() == earlier.keys()
        for key, moment in state.items():
            assert moment.shape == (HEIGHT, WIDTH)
            np.testing.assert_array_equal(moment[[0, 1, 3, 4]], earlier[key][[0, 1, 3, 4]])
            assert (moment[[2, 5]] != earlier[key][[2, 5]]).all()


def copied(state):
    return {key: value.copy() for key, value in state.items()}


def test_sparse_steps_equal_torch_sparse_adam():
    sparse_table, dense_table = table(), torch.nn.Parameter(table())
    lazy = Adam(0.01, grad_clip=0.0, L2=0.0)
    reference = torch.optim.SparseAdam([dense_table], lr=0.01)
    for number, gradient in enumerate(gradients(10)):
        rows = sorted({number % HEIGHT, (number * 2) % HEIGHT})
        step(lazy, sparse_table, rows, gradient[: len(rows)])
        dense_table.grad = sparse(rows, gradient[: len(rows)])
        reference.step()
    torch.testing.assert_close(sparse_table, dense_table.detach(), rtol=1e-4, atol=1e-6)


@every_optimizer
def test_averages_exclude_embedding_tables(make):
    sparse_table, optimizer = table(), make(use_averages=True)
    dense = np.ones(2, dtype="f")
    optimizer((1, "W"), dense, dense.copy())
    averages = copied(optimizer.averages)
    step(optimizer, sparse_table, [0, 2], gradients(1)[0][:2])
    assert optimizer.averages.keys() == averages.keys()
    np.testing.assert_array_equal(optimizer.averages[1, "W"], averages[1, "W"])


def test_optimizer_error_keeps_averages(monkeypatch):
    optimizer = Adam(0.01, use_averages=True)
    averages = optimizer.averages
    monkeypatch.setattr(Adam(0.1).__class__, "_adam", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        step(optimizer, table(), [0], gradients(1)[0][:1])
    assert optimizer.averages is averages


@every_optimizer
def test_grown_table_keeps_momentum_of_existing_rows(make):
    grown_height = HEIGHT + 4
    optimizers = [make(use_averages=False), make(use_averages=False)]
    tables = [table(), table(grown_height)]
    tables[1][:HEIGHT] = tables[0]
    first, second = gradients(2)
    for optimizer, weights in zip(optimizers, tables, strict=True):
        step(optimizer, weights, [1, 2], first[:2])
    tables[0] = torch.cat([tables[0], tables[1][HEIGHT:]])
    for optimizer, weights in zip(optimizers, tables, strict=True):
        step(optimizer, weights, [2, HEIGHT + 1], second[:2])
    torch.testing.assert_close(tables[0], tables[1])
    assert all(moment.shape == (grown_height, WIDTH) for moment in optimizers[0].mom1.values())


@every_optimizer
def test_empty_gradient_leaves_table_unchanged(make):
    sparse_table, optimizer = table(), make(use_averages=True)
    for rows in ([], [1], []):
        before = sparse_table.clone()
        step(optimizer, sparse_table, rows, gradients(1)[0][: len(rows)])
        assert torch.equal(sparse_table, before) == (not rows)


def test_tables_have_separate_optimizer_state():
    optimizer, alone = Adam(0.01), Adam(0.01)
    sparse_table, second, expected = table(), table(seed=5), table()
    for gradient in gradients(3):
        step(optimizer, sparse_table, ALL, gradient)
        apply_row_gradient(optimizer, (7, "tables.bigram"), second, sparse(ALL, -gradient))
        step(alone, expected, ALL, gradient)
    assert torch.equal(sparse_table, expected)


def test_callable_optimizer_receives_dense_table():
    """`nlp.rehearse` passes a function that collects gradients, and calls the optimizer later."""
    recorded = {}

    def record(key, weights, gradient):
        recorded[key] = (weights, gradient)
        return weights, gradient

    sparse_table, gradient = table(), gradients(1)[0][:2]
    before = sparse_table.clone()
    step(record, sparse_table, [1, 4], gradient)
    ((_, name), (weights, dense)) = recorded.popitem()
    assert name == f"tables.unigram[{HEIGHT}]"
    np.testing.assert_array_equal(dense[[1, 4]], gradient)
    assert not dense[[0, 2, 3, 5]].any()
    assert torch.equal(sparse_table, before)
    SGD(0.1, grad_clip=0.0)(KEY, weights, dense)
    np.testing.assert_allclose((before - sparse_table)[[1, 4]].numpy(), 0.1 * gradient, rtol=1e-5)


class RecordingSGD(MomentumSGD):
    """SGD that records updated rows. Dense updates fail."""

    __slots__ = ["calls"]

    def update_rows(self, key, rows, gradient):
        self.calls = [(key, rows.tolist())]
        super().update_rows(key, rows, gradient)

    def __call__(self, *_):
        pytest.fail("the table was updated as a dense array")


def test_package_sgd_updates_rows_directly():
    optimizer = RecordingSGD(0.1, momentum=0.9, clip_value=0.0, L2=0.0, rates=None)
    sparse_table, gradient = table(), gradients(1)[0][:2]
    before = sparse_table.clone()
    step(optimizer, sparse_table, [1, 4], gradient)
    assert optimizer.calls == [(KEY, before[[1, 4]].tolist())]
    np.testing.assert_allclose((before - sparse_table)[[1, 4]].numpy(), gradient, rtol=1e-5)
    assert torch.equal(sparse_table[[0, 2, 3, 5]], before[[0, 2, 3, 5]])
