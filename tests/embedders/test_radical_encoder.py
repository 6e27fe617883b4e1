"""Test the radical encoder: a convolution, the maximum and a linear layer, computed once per distinct character."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from paper_equations import reference_convolution
from torch import nn

from spacy_tener.embedders.spelling_torch import CharacterFeatures, RadicalEncoder, char_cnn
from spacy_tener.nn.layers_torch import UNKNOWN_ROW, EmbeddingTables

LENGTHS = np.array([4, 1, 3, 2], dtype=np.int64)
RADICALS = torch.tensor([1, 2, 3, 4, 0, 5, 6, 6, 7, 1])
TOKENS = torch.tensor([2, 0, 0, 3, 1, 2])


def encoder(*, dropout=0.0, radical_dropout=0.0, rows=9, window=3):
    tables = EmbeddingTables(
        rows={"radical": rows}, widths={"radical": 5}, word_dropout={"radical": 0.0}, dropout=dropout
    )
    features = CharacterFeatures(tables, char_cnn(char_width=5, filters=6, window=window, width=4), dropout=dropout)
    return RadicalEncoder(features, radical_dropout=radical_dropout).double().eval()


def reference(module, radicals, lengths):
    """Encode one character at a time with torch's convolution. *Shape:* (characters, width)"""
    table = module.radicals.tables.tables["radical"]
    rows = []
    for ids in radicals.split(lengths.tolist()):
        convolved = reference_convolution(module.radicals.encoder.encode.convolution, table[ids])
        rows.append(convolved.relu().amax(dim=0))
    linear = module.radicals.encoder.out
    return nn.functional.linear(torch.stack(rows), linear.weight, linear.bias)


def gradients(module):
    result = {name: parameter.grad.to_dense() for name, parameter in module.named_parameters()}
    module.zero_grad()
    return result


@pytest.mark.parametrize("window", [1, 3, 5])
def test_outputs_and_gradients_equal_reference(window):
    module = encoder(window=window)
    weights = torch.randn(len(TOKENS), 4, dtype=torch.float64)
    expected = reference(module, RADICALS, LENGTHS)[TOKENS]
    (expected * weights).sum().backward()
    expected_gradients = gradients(module)
    outputs = module(RADICALS, LENGTHS, TOKENS)
    torch.testing.assert_close(outputs, expected)
    (outputs * weights).sum().backward()
    for name, gradient in gradients(module).items():
        torch.testing.assert_close(gradient, expected_gradients[name], msg=name)


def test_empty_batch_and_missing_radicals_are_supported():
    module = encoder()
    nothing = torch.zeros(0, dtype=torch.int64)
    assert module(nothing, np.zeros(0, dtype=np.int64), nothing).shape == (0, 4)
    outputs = module(RADICALS[:4], np.array([4, 0]), torch.tensor([0, 1]))
    bias = module.radicals.encoder.out.bias
    torch.testing.assert_close(outputs[1], bias)


def test_radical_dropout_replaces_tokens_only_in_training():
    module = encoder(radical_dropout=0.3)
    tokens = TOKENS.repeat(500)
    predicted = module(RADICALS, LENGTHS, tokens)
    unknown = module(torch.tensor([UNKNOWN_ROW]), np.array([1]), torch.tensor([0]))
    module.train()
    trained = module(RADICALS, LENGTHS, tokens)
    dropped = torch.isclose(trained, unknown).all(dim=1)
    torch.testing.assert_close(trained[~dropped], predicted[~dropped])
    has_radicals = tokens != 1  # character 1 has the unknown radical
    assert 0.26 < dropped[has_radicals].double().mean() < 0.34
    assert torch.equal(module.eval()(RADICALS, LENGTHS, tokens), predicted)


def test_unknown_radical_is_trained_by_dropped_tokens():
    radicals, lengths = RADICALS.masked_fill(RADICALS == 0, 8), LENGTHS
    module = encoder(radical_dropout=0.5).train()
    module(radicals, lengths, TOKENS.repeat(20)).sum().backward()
    assert gradients(module)["radicals.tables.tables.radical"][UNKNOWN_ROW].abs().sum() > 0
    module.eval()(radicals, lengths, TOKENS.repeat(20)).sum().backward()
    assert gradients(module)["radicals.tables.tables.radical"][UNKNOWN_ROW].abs().sum() == 0


def test_dropout_applies_to_rows_and_output():
    module = encoder(dropout=0.5).train()
    tokens = torch.zeros(400, dtype=torch.int64)
    outputs = module(RADICALS, LENGTHS, tokens)
    assert 0.4 < (outputs == 0).double().mean() < 0.6
    # A character is encoded once, so values that are not dropped are equal for all of its tokens.
    for column in outputs.t():
        assert len(column[column != 0].unique()) == 1


def test_parameter_names_start_with_radicals():
    names = [name for name, _ in encoder().named_parameters()]
    assert len(names) == 5
    assert all(name.startswith("radicals.") for name in names)
