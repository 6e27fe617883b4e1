"""Dropout, projections, and embedding tables that grow and have a trained row for unknown strings."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from spacy_tener.nn import layers_torch as dense
from spacy_tener.nn.layers_torch import UNKNOWN_ROW, EmbeddingTables, Projection, dropout, random_rows


@pytest.mark.parametrize("p", [0.1, 0.15, 0.5, 0.9])
def test_dropout_rate_and_scaling_are_correct(p: float) -> None:
    torch.manual_seed(0)
    dropped = dropout(torch.ones(400, 1000), p, training=True)
    remaining = dropped[dropped != 0]
    assert torch.allclose(remaining, torch.full_like(remaining, 1 / (1 - p)), rtol=1e-3)
    # 5 standard deviations of a mean over 400,000 draws.
    assert abs(1 - len(remaining) / dropped.numel() - p) < 5 * (p * (1 - p) / 400_000) ** 0.5


def test_dropout_rate_is_exact_over_all_random_values(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = torch.arange(-(1 << 15), 1 << 15)
    monkeypatch.setattr(dense, "random_int16", lambda like: steps.to(like.dtype))
    dropped = dropout(torch.ones(1 << 16, dtype=torch.float64), 0.15, training=True)
    assert (dropped == 0).sum() == round(0.15 * 65536)
    assert dropped.mean().item() == pytest.approx(1.0, abs=1e-12)


def test_dropout_of_neighbours_is_independent() -> None:
    torch.manual_seed(2)
    dropped = (dropout(torch.ones(100_000, 4), 0.5, training=True) == 0).double()
    correlation = torch.corrcoef(dropped.T)
    assert (correlation - torch.eye(4, dtype=torch.float64)).abs().max() < 0.02


def test_dropout_is_identity_in_evaluation_or_at_zero_rate() -> None:
    x = torch.randn(5, 3)
    assert dropout(x, 0.5, training=False) is x
    assert dropout(x, 0.0, training=True) is x


def test_dropout_rate_of_one_drops_everything() -> None:
    assert dropout(torch.ones(7), 1.0, training=True).abs().sum() == 0


def test_dropout_gradient_uses_same_mask() -> None:
    torch.manual_seed(5)
    x = torch.ones(1000, dtype=torch.float64, requires_grad=True)
    dropped = dropout(x, 0.3, training=True)
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped.detach())


def test_projection_is_applied_per_token() -> None:
    torch.manual_seed(0)
    layer, x = Projection(width_in=4, width_out=3), torch.randn(5, 4)
    projected = layer(x, [2, 0, 3])
    torch.testing.assert_close(projected, F.linear(x, layer.linear.weight, layer.linear.bias))
    assert layer(x[:0], [0]).shape == (0, 3)


def tables(rows=None, word_dropout=0.0, dropout=0.0, widths=None):
    rows = rows or {"unigram": 6, "bigram": 5}
    return EmbeddingTables(
        rows=rows,
        widths=widths or dict(zip(rows, (4, 3), strict=False)),
        word_dropout=dict.fromkeys(rows, word_dropout),
        dropout=dropout,
    ).eval()


def ids(*rows):
    return torch.tensor(rows, dtype=torch.int64)


def test_embeddings_of_all_tables_are_concatenated():
    module = tables()
    embedded = module(ids(1, 0, 1), ids(4, 2, 0))
    assert embedded.shape == (3, 7)
    assert torch.equal(embedded[:, :4], module.tables["unigram"][[1, 0, 1]])
    assert torch.equal(embedded[:, 4:], module.tables["bigram"][[4, 2, 0]])


def test_tables_keep_insertion_order():
    # A ParameterDict would sort the names.
    module = tables(rows={"z": 3, "a": 4}, widths={"z": 2, "a": 1})
    embedded = module(ids(2), ids(3))
    assert torch.equal(embedded[0, :2], module.tables["z"][2])
    assert torch.equal(embedded[0, 2:], module.tables["a"][3])


def test_table_gradient_is_sparse_and_sums_repeated_rows():
    module = tables()
    module(ids(1, 3, 1), ids(0, 0, 2)).sum().backward()
    gradient = module.tables["unigram"].grad
    assert gradient.is_sparse
    gradient = gradient.coalesce()
    assert gradient.indices().tolist() == [[1, 3]]
    assert gradient.values().tolist() == [[2.0] * 4, [1.0] * 4]
    assert module.tables["bigram"].grad.coalesce().indices().tolist() == [[0, 2]]


@pytest.mark.parametrize("rate", [0.02, 0.3])
def test_word_dropout_rate_is_correct_in_training(rate):
    n_tokens = 40_000
    module = tables(word_dropout=rate)
    for name in module.names:
        module.tables[name].data.fill_(1.0)[UNKNOWN_ROW] = 0.0
    row_numbers = [torch.full((n_tokens,), 2), torch.full((n_tokens,), 3)]
    assert torch.equal(module(*row_numbers), torch.ones(n_tokens, 7))
    dropped = module.train()(*row_numbers) == 0
    spread = (rate * (1 - rate) / n_tokens) ** 0.5
    for block in (dropped[:, :4], dropped[:, 4:]):
        assert torch.equal(block.any(1), block.all(1)), "all dimensions of a token are dropped together"
        assert abs(block[:, 0].float().mean().item() - rate) < 5 * spread
    assert not torch.equal(dropped[:, 0], dropped[:, 4]), "tables are dropped independently"


def test_word_dropout_is_set_per_table():
    module = tables().train()
    module.word_dropout = {"unigram": 0.0, "bigram": 0.999}
    module.tables["bigram"].data[UNKNOWN_ROW] = 7.0
    embedded = module(ids(*[1] * 50), ids(*[1] * 50))
    assert torch.equal(embedded[:, :4], module.tables["unigram"][[1] * 50])
    assert (embedded[:, 4:] == 7.0).all(1).sum() > 45


def test_word_dropout_trains_the_unknown_row():
    module = tables(word_dropout=0.5).train()
    rows = ids(*[2] * 50)
    module(rows, rows).sum().backward()
    assert module.tables["unigram"].grad.coalesce().indices().tolist() == [[UNKNOWN_ROW, 2]]


def test_dropout_acts_on_single_dimensions_in_training():
    module = tables(dropout=0.5)
    rows = [ids(*[1] * 500), ids(*[1] * 500)]
    assert (module(*rows) != 0).all()
    dropped = (module.train()(*rows) == 0).float()
    assert abs(dropped.mean().item() - 0.5) < 0.05
    assert len(dropped.sum(1).unique()) > 3


def test_growing_keeps_rows_and_adds_random_rows():
    module = tables()
    before = {name: table.detach().clone() for name, table in module.tables.items()}
    module.grow("unigram", 50)
    grown = module.tables["unigram"]
    assert grown.shape == (50, 4)
    assert grown.requires_grad
    assert torch.equal(grown[:6], before["unigram"])
    assert grown[6:].abs().max() <= (3 / 4) ** 0.5
    assert grown[6:].std() > 0.3
    assert torch.equal(module.tables["bigram"], before["bigram"])
    assert dict(module.named_parameters()).keys() == {"tables.unigram", "tables.bigram"}


def test_growing_keeps_accumulated_gradients():
    module = tables()
    module(ids(1, 5), ids(0, 0)).sum().backward()
    module.grow("unigram", 9)
    module(ids(8, 1), ids(0, 0)).sum().backward()
    gradient = module.tables["unigram"].grad.coalesce()
    assert gradient.shape == (9, 4)
    assert gradient.indices().tolist() == [[1, 5, 8]]
    assert gradient.values()[:, 0].tolist() == [2.0, 1.0, 1.0]


def test_fill_changes_selected_rows_only():
    module = tables()
    before = module.tables["unigram"].detach().clone()
    vectors = torch.arange(8, dtype=torch.float64).view(2, 4)
    module.fill("unigram", ids(5, 2), vectors)
    table = module.tables["unigram"]
    assert torch.equal(table[[5, 2]], vectors.float())
    assert torch.equal(table[[0, 1, 3, 4]], before[[0, 1, 3, 4]])
    assert table.requires_grad
    assert table.grad_fn is None


@pytest.mark.parametrize("width", [1, 50, 300])
def test_random_rows_have_unit_norm_on_average(width):
    rows = random_rows(4000, width)
    assert rows.shape == (4000, width)
    assert rows.abs().max() <= (3 / width) ** 0.5
    assert rows.square().sum(1).mean().item() == pytest.approx(1.0, abs=0.05)
    assert rows.mean().abs() < 0.02
