"""The encoder of radicals: filters, maximum, linear layer, once for each distinct character."""

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


def plain(module, radicals, lengths):
    """Each single character, through torch's own convolution. *Shape* [n, width]"""
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
def test_outputs_and_gradients_equal_a_plain_convolution_and_maximum(window):
    module = encoder(window=window)
    weights = torch.randn(len(TOKENS), 4, dtype=torch.float64)
    expected = plain(module, RADICALS, LENGTHS)[TOKENS]
    (expected * weights).sum().backward()
    expected_gradients = gradients(module)
    outputs = module(RADICALS, LENGTHS, TOKENS)
    torch.testing.assert_close(outputs, expected)
    (outputs * weights).sum().backward()
    for name, gradient in gradients(module).items():
        torch.testing.assert_close(gradient, expected_gradients[name], msg=name)


def test_no_tokens_and_a_character_without_radicals_are_legal():
    module = encoder()
    nothing = torch.zeros(0, dtype=torch.int64)
    assert module(nothing, np.zeros(0, dtype=np.int64), nothing).shape == (0, 4)
    outputs = module(RADICALS[:4], np.array([4, 0]), torch.tensor([0, 1]))
    bias = module.radicals.encoder.out.bias
    torch.testing.assert_close(outputs[1], bias)


def test_in_training_a_token_is_now_and_then_of_unknown_structure():
    module = encoder(radical_dropout=0.3)
    tokens = TOKENS.repeat(500)
    predicted = module(RADICALS, LENGTHS, tokens)
    unknown = module(torch.tensor([UNKNOWN_ROW]), np.array([1]), torch.tensor([0]))
    module.train()
    trained = module(RADICALS, LENGTHS, tokens)
    dropped = torch.isclose(trained, unknown).all(dim=1)
    torch.testing.assert_close(trained[~dropped], predicted[~dropped])
    has_radicals = tokens != 1  # character 1 is the unknown radical anyway
    assert 0.26 < dropped[has_radicals].double().mean() < 0.34
    assert torch.equal(module.eval()(RADICALS, LENGTHS, tokens), predicted)


def test_the_unknown_radical_learns_from_dropped_tokens_alone():
    radicals, lengths = RADICALS.masked_fill(RADICALS == 0, 8), LENGTHS
    module = encoder(radical_dropout=0.5).train()
    module(radicals, lengths, TOKENS.repeat(20)).sum().backward()
    assert gradients(module)["radicals.tables.tables.radical"][UNKNOWN_ROW].abs().sum() > 0
    module.eval()(radicals, lengths, TOKENS.repeat(20)).sum().backward()
    assert gradients(module)["radicals.tables.tables.radical"][UNKNOWN_ROW].abs().sum() == 0


def test_dropout_acts_on_the_rows_and_on_the_output():
    module = encoder(dropout=0.5).train()
    tokens = torch.zeros(400, dtype=torch.int64)
    outputs = module(RADICALS, LENGTHS, tokens)
    assert 0.4 < (outputs == 0).double().mean() < 0.6
    # One character is encoded once: where it is kept, it is the same for all its tokens.
    for column in outputs.t():
        assert len(column[column != 0].unique()) == 1


def test_every_parameter_s_name_begins_with_radicals():
    names = [name for name, _ in encoder().named_parameters()]
    assert len(names) == 5
    assert all(name.startswith("radicals.") for name in names)
