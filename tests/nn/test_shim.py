"""The shim of a torch module in a Thinc model: lazy building, serialization, training, averages, copies and devices."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from model_checks import learn
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import SGD, Adam, chain
from torch import nn

from spacy_tener.embedders.char_embed import build_char_embed
from spacy_tener.nn.backend_torch import hide_known_warnings
from spacy_tener.nn.compose import chain_layers, ragged_layer
from spacy_tener.nn.layers_numpy import WeightsError
from spacy_tener.nn.serialize import from_safetensors, to_safetensors
from spacy_tener.nn.shim import TorchShim, torch_shim

WIDTH_IN, WIDTH_OUT = 3, 4
LENGTHS = [2, 0, 3, 1, 0]


class Mixer(nn.Module):
    """Combine each token with the sum of its sequence, so that the output depends on the sequence boundaries."""

    def __init__(self, nI, nO):
        super().__init__()
        self.own = nn.Linear(nI, nO)
        self.common = nn.Linear(nI, nO, bias=False)
        self.dropout = nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x, lengths):
        if sum(lengths) != len(x):
            raise ValueError("lengths do not fit")
        sums = torch.stack([part.sum(0) for part in x.split(list(lengths))])
        common = self.common(sums).repeat_interleave(torch.tensor(lengths), 0)
        return self.dropout(torch.tanh(self.own(x) + common))


class Steady(Mixer):
    """A Mixer without dropout."""

    def __init__(self, nI, nO):
        super().__init__(nI, nO)
        self.dropout = nn.Identity()


def build_mixer(*, nI, nO):
    return Mixer(nI, nO)


def build_steady(*, nI, nO):
    return Steady(nI, nO)


def make_shim(build=build_steady):
    shim = TorchShim(build)
    shim.build(nI=WIDTH_IN, nO=WIDTH_OUT)
    return shim


def layer(build=build_steady, width_in=WIDTH_IN, width_out=WIDTH_OUT):
    return ragged_layer("mixer", build, width_in=width_in, width_out=width_out)


def inputs(lengths=LENGTHS, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(length, WIDTH_IN)).astype("f") for length in lengths]


def weights(shim):
    return {name: value.clone() for name, value in shim.module.state_dict().items()}


def weights_equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_shim_without_module_raises_error_with_fix():
    shim = TorchShim(build_mixer)
    assert not shim.is_built
    for use in (lambda: shim.module, lambda: shim.device, lambda: shim.weights):
        with pytest.raises(ValueError, match=r"no weights yet. Call nlp.initialize"):
            use()


def test_bytes_contain_sizes_and_weights():
    shim, loaded = make_shim(), make_shim()
    assert not weights_equal(weights(shim), weights(loaded))
    loaded.from_bytes(shim.to_bytes())
    assert loaded.sizes == {"nI": WIDTH_IN, "nO": WIDTH_OUT}
    assert weights_equal(weights(shim), weights(loaded))
    assert loaded.to_bytes() == shim.to_bytes()


class Named(nn.Module):
    """A module with a buffer or a parameter of any name."""

    def __init__(self, name, **sizes):
        super().__init__()
        self.register_buffer(name, torch.tensor([1, 2], dtype=torch.uint8))
        self.weight = nn.Parameter(torch.ones(2))


def test_parameter_with_name_of_argument_and_uint8_buffer_are_saved():
    shim = TorchShim(Named)
    shim.build(name="width", width=3, file=b"file")
    loaded = TorchShim(Named).from_bytes(shim.to_bytes())
    assert loaded.sizes == {"name": "width", "width": 3, "file": b"file"}
    assert weights_equal(weights(loaded), weights(shim))
    assert loaded.weights["width"].dtype == np.uint8


@pytest.mark.parametrize(
    ("sizes", "name"),
    [({"name": "sizes"}, "sizes"), ({"name": "file", "file": b""}, "file"), ({"name": "x", "sizes": b""}, "sizes")],
)
def test_names_that_would_overwrite_each_other_in_saved_file_are_rejected(sizes, name):
    with pytest.raises(ValueError, match=f"reserved or used twice: {name}. Rename the parameters or arguments"):
        TorchShim(Named).build(**sizes)


def test_shim_without_module_survives_serialization():
    empty = TorchShim(build_mixer).to_bytes()
    assert not TorchShim(build_mixer).from_bytes(empty).is_built
    shim = make_shim().from_bytes(empty)
    assert not shim.is_built
    assert shim.sizes == {}


def test_size_mismatch_raises_error_and_keeps_module():
    shim = make_shim()
    before = weights(shim)
    parts = from_safetensors(shim.to_bytes())
    parts["sizes"]["nO"] = WIDTH_OUT + 1
    with pytest.raises(WeightsError, match="size mismatch"):
        shim.from_bytes(to_safetensors(parts))
    assert weights_equal(weights(shim), before)
    assert shim.sizes == {"nI": WIDTH_IN, "nO": WIDTH_OUT}


def test_module_is_in_evaluation_mode_outside_updates():
    model = layer(build_mixer)
    model.initialize()
    module = torch_shim(model).module
    modes = []
    module.register_forward_hook(lambda *_: modes.append(module.dropout.training))
    model.begin_update(inputs())
    assert not module.dropout.training
    model.predict(inputs())
    assert modes == [True, False]
    assert not TorchShim(build_mixer).from_bytes(torch_shim(model).to_bytes()).module.training


def test_error_in_module_restores_evaluation_mode():
    model = layer(build_mixer)
    model.initialize()
    with pytest.raises(RuntimeError):
        model.begin_update([np.zeros((2, WIDTH_IN + 1), dtype="f")])
    assert not torch_shim(model).module.dropout.training


def test_update_clears_gradients():
    model = layer()
    model.initialize()
    before = weights(torch_shim(model))
    learn(model, inputs(), SGD(0.1))
    shim = torch_shim(model)
    assert all(parameter.grad is None for parameter in shim.module.parameters())
    after = weights(shim)
    assert not torch.equal(before["own.weight"], after["own.weight"])
    model.finish_update(SGD(0.1))
    assert weights_equal(weights(shim), after), "no gradient is left"


def test_update_step_equals_torch():
    model, X = layer(), inputs()
    model.initialize()
    reference = copy.deepcopy(torch_shim(model).module)
    Y, backprop = model.begin_update(X)
    gradients = backprop([y - 0.5 for y in Y])
    model.finish_update(SGD(0.1, grad_clip=0.0))
    joined = torch.from_numpy(np.concatenate(X)).requires_grad_()
    output = reference(joined, LENGTHS)
    output.backward(output.detach() - 0.5)
    assert [len(gradient) for gradient in gradients] == LENGTHS
    np.testing.assert_allclose(np.concatenate(gradients), joined.grad, rtol=1e-5, atol=1e-6)
    for name, parameter in reference.named_parameters():
        expected = parameter - 0.1 * parameter.grad
        torch.testing.assert_close(torch_shim(model).module.get_parameter(name), expected)


def test_averages_replace_weights_only_inside_use_params():
    model, X = layer(), inputs()
    model.initialize()
    shim, optimizer = torch_shim(model), Adam(0.05, use_averages=True)
    learn(model, X, optimizer, steps=4)
    trained, predicted = weights(shim), model.predict(X)[0]
    with model.use_params(optimizer.averages):
        for name, _ in shim.module.named_parameters():
            np.testing.assert_array_equal(shim.module.get_parameter(name).detach(), optimizer.averages[shim.id, name])
        assert not np.allclose(model.predict(X)[0], predicted)
    assert weights_equal(weights(shim), trained)
    np.testing.assert_array_equal(model.predict(X)[0], predicted)


def test_error_inside_use_params_restores_weights():
    model, X = ragged_layer("linear", build_linear, linear_predictor, width_in=WIDTH_IN, width_out=WIDTH_OUT), inputs()
    model.initialize()
    shim = torch_shim(model)
    before, expected = weights(shim), model.predict(X)[0]
    zeros = {(shim.id, "own.weight"): np.zeros((WIDTH_OUT, WIDTH_IN), dtype="f")}

    def fail():
        assert not model.predict(X)[0].any()
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"), model.use_params(zeros):
        fail()
    assert weights_equal(weights(shim), before)
    np.testing.assert_array_equal(model.predict(X)[0], expected)


def test_use_params_ignores_missing_and_foreign_parameters():
    shim = make_shim()
    before, zeros = weights(shim), np.zeros(WIDTH_OUT, dtype="f")
    with shim.use_params({(shim.id, "own.bias"): zeros, (shim.id + 1, "own.weight"): zeros}):
        assert not shim.module.own.bias.any()
        assert torch.equal(shim.module.own.weight, before["own.weight"])


@pytest.mark.parametrize("make_copy", [TorchShim.copy, copy.deepcopy, lambda shim: pickle.loads(pickle.dumps(shim))])
def test_copy_is_independent(make_copy):
    shim = make_shim()
    copied = make_copy(shim)
    assert weights_equal(weights(copied), weights(shim))
    assert copied.sizes == shim.sizes
    assert copied.id != shim.id, "optimizers distinguish shims by id"
    before = weights(shim)
    with torch.no_grad():
        copied.module.own.weight.zero_()
    copied.sizes["nI"] = 0
    assert weights_equal(weights(shim), before)
    assert shim.sizes["nI"] == WIDTH_IN


def test_optimizer_state_is_reset_if_module_size_changes():
    shim, optimizer = make_shim(), Adam(0.1, use_averages=True)
    for sizes in ({"nI": WIDTH_IN, "nO": WIDTH_OUT}, {"nI": WIDTH_IN, "nO": 2 * WIDTH_OUT}):
        shim.set_module(build_steady(**sizes), sizes)
        with shim.use_params(optimizer.averages):
            shim.module(torch.ones(2, WIDTH_IN), [2]).sum().backward()
        shim.finish_update(optimizer)
    assert optimizer.averages[shim.id, "own.bias"].shape == (2 * WIDTH_OUT,)


def test_setting_same_module_keeps_optimizer_state():
    shim = make_shim()
    shim_id = shim.id
    shim.set_module(shim.module, shim.sizes)
    assert shim.id == shim_id


def test_model_weights_survive_pickle_and_disk(tmp_path: Path):
    model, X = layer(width_in=None), inputs()
    model.initialize(X)
    expected = model.predict(X)[0]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X)[0], expected)
    model.to_disk(tmp_path / "model")
    loaded = layer(width_in=None).from_disk(tmp_path / "model")
    np.testing.assert_array_equal(loaded.predict(X)[0], expected)
    assert loaded.get_dim("nI") == WIDTH_IN
    assert loaded.to_bytes() == model.to_bytes()


def test_copied_model_keeps_node_types_and_predictions():
    embed = chain_layers(build_char_embed(width=6, bigram_width=0), layer(width_in=6))
    model = chain(embed, layer(width_in=WIDTH_OUT))
    docs = [Doc(Vocab(), words=["吴", "重阳"])]
    model.initialize(docs)
    copied = model.copy()
    assert [type(node) for node in copied.walk()] == [type(node) for node in model.walk()]
    np.testing.assert_array_equal(copied.predict(docs)[0], model.predict(docs)[0])


def test_widths_are_set_or_inferred_from_sample():
    X, Y = inputs(), [np.zeros((length, 7), dtype="f") for length in LENGTHS]
    for widths in ({}, {"width_in": WIDTH_IN}):
        model = ragged_layer("mixer", build_steady, **widths)
        model.initialize(X, Y)
        assert (model.get_dim("nI"), model.get_dim("nO")) == (WIDTH_IN, 7)
        assert model.predict(X)[0].shape == (2, 7)
    model = layer()
    model.initialize()
    assert model.predict(X)[0].shape == (2, WIDTH_OUT)


@pytest.mark.parametrize("lengths", [LENGTHS, [4], [0], [0, 0], [1] * 5, []])
def test_layer_applies_module_to_concatenated_tokens(lengths):
    model, X = layer(), inputs(lengths)
    model.initialize()
    module = torch_shim(model).module
    expected = module(torch.from_numpy(np.concatenate(X)), lengths).detach().numpy() if X else []
    ends = np.cumsum(lengths, dtype=int)
    for Y in (model.predict(X), model.begin_update(X)[0]):
        assert [y.shape for y in Y] == [(length, WIDTH_OUT) for length in lengths]
        for y, end, length in zip(Y, ends, lengths, strict=True):
            np.testing.assert_array_equal(y, expected[end - length : end])


def test_backprop_after_prediction_raises_error():
    model = layer()
    model.initialize()
    _, backprop = model(inputs(), is_train=False)
    with pytest.raises(ValueError, match="Call begin_update"):
        backprop(inputs())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda x: x[::-1], id="reversed"),
        pytest.param(lambda x: np.asfortranarray(x), id="Fortran order"),
        pytest.param(lambda x: x.astype("d"), id="float64"),
        pytest.param(lambda x: np.repeat(x, 2, axis=1)[:, ::2], id="with gaps"),
        pytest.param(lambda x: np.broadcast_to(x[:1], x.shape), id="read-only broadcast"),
    ],
)
@pytest.mark.parametrize("n_texts", [1, 2])
def test_arrays_with_any_memory_layout_are_supported(change, n_texts):
    model = layer()
    model.initialize()
    X = [change(x) for x in inputs([5] * n_texts)]
    plain = [np.array(x, dtype="f", order="C", copy=True) for x in X]
    for y, expected in zip(model.predict(X), model.predict(plain), strict=True):
        np.testing.assert_array_equal(y, expected)
    Y, backprop = model.begin_update(X)
    assert [d.dtype for d in backprop([change(y) for y in Y])] == [np.dtype("f")] * n_texts


def in_fork(function):
    """Call a function in a forked process, and return its result (below 256), or None after a timeout."""
    child = os.fork()
    if not child:
        try:
            os._exit(function())
        finally:
            os._exit(255)
    for _ in range(500):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@needs_fork
def test_forked_process_uses_single_thread(three_threads):
    model = layer()
    model.initialize()
    model.predict(inputs([100_000]))
    assert in_fork(lambda: len(model.predict(inputs([100_000]))) * torch.get_num_threads()) == 1
    assert torch.get_num_threads() == 3


def test_replacement_module_stays_on_device(monkeypatch):
    shim = make_shim()
    monkeypatch.setattr("spacy_tener.nn.shim.get_torch_default_device", lambda: torch.device("meta"))
    shim.set_module(build_steady(nI=WIDTH_IN, nO=9), {"nI": WIDTH_IN, "nO": 9})
    assert shim.device == torch.device("cpu")


def linear_predictor(weights):
    """Return the NumPy predictor for `build_linear`, with a copy of the weights."""
    weight = weights["own.weight"].T.copy()
    return lambda x, lengths: x @ weight


def build_linear(*, nI, nO):
    module = nn.Module()
    module.own = nn.Linear(nI, nO, bias=False)
    module.forward = lambda x, lengths: module.own(x)
    return module


@pytest.mark.parametrize(
    ("names", "message"),
    [(["own.weight", "other"], "contain 'other'"), (["other"], "do not contain 'own.weight'")],
    ids=["too many", "others"],
)
def test_wrong_weight_names_raise_error_without_torch(names, message):
    shim = TorchShim(build_linear, linear_predictor)
    with pytest.raises(WeightsError, match=message):
        shim.load_arrays({name: np.zeros((WIDTH_OUT, WIDTH_IN), dtype="f") for name in names}, {"nI": WIDTH_IN})
    assert not shim.is_built
    assert shim.sizes == {}


def build_constant(*, nI, nO):
    """Build a module whose output does not depend on its input."""
    module = nn.Module()
    module.bias = nn.Parameter(torch.ones(nO))
    module.forward = lambda x, lengths: module.bias.expand(len(x), -1)
    return module


def test_gradient_of_unused_input_is_zero():
    model, X = layer(build_constant), inputs()
    model.initialize()
    Y, backprop = model.begin_update(X)
    for gradient, x in zip(backprop(Y), X, strict=True):
        np.testing.assert_array_equal(gradient, np.zeros_like(x))


def test_only_known_dependency_warnings_are_hidden():
    dlpack = (
        "This function is deprecated and will be removed in a future release. Use the cupy.from_dlpack() array "
        "constructor instead."
    )
    context = "Attempting to run cuBLAS, but there was no current CUDA context! Attempting to set the primary context."
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        hide_known_warnings.__wrapped__()
        for message, module in [(dlpack, "thinc.util"), (context, "torch.autograd.graph")]:
            warnings.warn_explicit(message, UserWarning, "file.py", 1, module=module)
        assert not caught
        for message, module in [(dlpack, "users.own"), ("Attempting to run cuBLAS", "torch.autograd.graph")]:
            warnings.warn_explicit(message, UserWarning, "file.py", 1, module=module)
    assert len(caught) == 2


HOST = """
import os, warnings
import spacy, thinc.api, torch  # which have filters of their own
torch.set_num_threads(2)
before = list(warnings.filters)
import spacy_tener.nn.backend_torch
assert warnings.filters == before
reader, writer = os.pipe()
if not os.fork():
    os.write(writer, str(torch.get_num_threads()).encode())
    os._exit(0)
assert os.read(reader, 9) == b"2"
"""


@needs_fork
def test_import_does_not_change_warning_filters_or_forks():
    subprocess.run([sys.executable, "-c", HOST], check=True, timeout=120)
