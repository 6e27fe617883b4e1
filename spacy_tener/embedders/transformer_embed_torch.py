"""A pretrained transformer as a torch module: from word subwords to one row of features per token; and multilingual E5 as
a model of the library transformers, to train it further."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import torch
from spacy.tokens import Doc
from torch import Tensor, nn

from ..errors import RemedyError
from ..features.cache import FeatureCache, cache_key
from ..features.subwords import SubwordBatch, SubwordTokenizer
from ..nn.devices_torch import autocast_to_bfloat16, on_device
from ..nn.layers_torch import Dropout
from ..nn.ragged_torch import Ragged, Segments
from ..onnx.published_weights import BertWeights, Blocks, name_in_transformers, tensor_names
from ..types import IntArray
from .transformer_embed_config import TransformerEmbedConfig

_MAX_POSITIONS = {"cpu": 4096, "cuda": 1 << 16}
"""Maximum number of word subwords, with padding, that a prediction computes at once, to limit memory for long texts."""
_SUBWORDS_PER_CALL = {"cpu": 32, "cuda": 1 << 14}
"""Cost of one more call, in subwords of padding: computing these takes as long as launching a dozen layers."""
_E5_SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class PretrainedTransformer(nn.Module):
    """The features of tokens: the mean of their subwords' hidden in the last layers, or the first subword's; 0 for a token
    without a subword.

    transformer (PreTrainedModel): A model of the library transformers. Its parameters' names begin with `transformer.`.
    subword_tokenizer (SubwordTokenizer): The reader of its subwords.
    """

    def __init__(self, transformer: Any, subword_tokenizer: SubwordTokenizer, config: TransformerEmbedConfig) -> None:
        super().__init__()
        self.transformer = transformer
        self.subword_tokenizer = subword_tokenizer
        self.config = config
        self.dropout = Dropout(config.dropout)
        self.cache = FeatureCache(config.cache * 1_000_000)
        # A batch uses a few hundred hidden of a table that holds as many numbers as all layers of a small transformer.
        self.transformer.get_input_embeddings().sparse = True
        self._frozen = [transformer] if config.frozen else self._lower_parts()
        for part in self._frozen:
            part.requires_grad_(False)

    def _lower_parts(self) -> list[nn.Module]:
        """Return what is below the lowest layer that is trained."""
        n_layers = self.config.frozen_layers
        return [self.transformer.embeddings, *self.transformer.encoder.layer[:n_layers]] if n_layers else []

    def train(self, mode: bool = True) -> PretrainedTransformer:
        super().train(mode)
        for part in self._frozen:
            part.eval()
        return self

    def forward(self, docs: Sequence[Doc]) -> Tensor:
        """Return the features of all tokens, after dropout. *Shape:* (tokens, width)"""
        if self.config.frozen:
            with torch.no_grad():
                features = self._cached(docs, self._features_of_docs)
        elif self._frozen and (self.training or self.cache.has_begun):
            features = self._features_above_frozen(docs)
        else:
            features = self.features(self.subword_tokenizer(docs))
        dropped: Tensor = self.dropout(features)
        return dropped

    def _cached(self, docs: Sequence[Doc], compute: Callable[[Sequence[Doc]], list[Tensor]]) -> Tensor:
        return torch.cat(list(self.cache(list(map(cache_key, docs)), docs, compute, training=self.training)))

    def _features_of_docs(self, docs: Sequence[Doc]) -> list[Tensor]:
        """Return the features of each Doc. *Shape:* (tokens, width) each"""
        return list(torch.split(self.features(self.subword_tokenizer(docs)), [len(doc) for doc in docs]))

    def _features_above_frozen(self, docs: Sequence[Doc]) -> Tensor:
        """Return the features, of hidden that the frozen layers have computed once for each text.
        *Shape:* (tokens, width)"""
        subwords = self.subword_tokenizer(docs)
        with torch.no_grad():
            lower = self._cached(docs, self._frozen_outputs)
        return self._pool(self._run_in_batches(subwords, lower, self._run_trained_layers), subwords)

    def _frozen_outputs(self, docs: Sequence[Doc]) -> list[Tensor]:
        """Return the hidden of each Doc's subwords above the frozen layers. *Shape:* (subwords, width) each"""
        subwords = self.subword_tokenizer(docs)
        hidden = self._run_in_batches(subwords, self._ids(subwords), self._run_frozen_layers)
        return list(torch.split(hidden, subwords.sizes.tolist()))

    def _run_frozen_layers(self, ids: Tensor, key_mask: Tensor | None) -> Tensor:
        """Return the hidden of windows of one length above the frozen layers.

        ids (Tensor): *Shape:* (windows, length, 1)
        key_mask (Optional[Tensor]): That of the windows' bucket.
        RETURNS (Tensor): *Shape:* (windows, length, width)
        """
        hidden = self.transformer.embeddings(input_ids=ids[..., 0])
        if hasattr(self.transformer, "embeddings_project"):
            hidden = self.transformer.embeddings_project(hidden)  # of a small ELECTRA
        return self._run_layers(hidden, key_mask, slice(self.config.frozen_layers))[-1].float()

    def _run_trained_layers(self, hidden: Tensor, key_mask: Tensor | None) -> Tensor:
        """Return the hidden of windows of one length, from those above the frozen layers.

        hidden (Tensor): *Shape:* (windows, length, width)
        key_mask (Optional[Tensor]): That of the windows' bucket.
        RETURNS (Tensor): *Shape:* (windows, length, width)
        """
        layers, first = self.config.layers, self.config.frozen_layers
        states = self._run_layers(hidden, key_mask, slice(first, None))
        return mean_of_states(
            states, layers if isinstance(layers, int) else [layer - first for layer in layers]
        ).float()

    def _run_layers(self, hidden: Tensor, key_mask: Tensor | None, part: slice) -> list[Tensor]:
        """Return the hidden below some layers, and above each of them. *Shape:* (windows, length, width) each"""
        states = [hidden]
        for layer in self.transformer.encoder.layer[part]:
            output = layer(states[-1], key_mask)
            states.append(output[0] if isinstance(output, tuple) else output)  # by the library's version
        return states

    def features(self, subwords: SubwordBatch) -> Tensor:
        """Return the features before dropout. *Shape:* (tokens, width)"""
        return self._pool(self._run_in_batches(subwords, self._ids(subwords), self._run_all_layers), subwords)

    def _ids(self, subwords: SubwordBatch) -> Tensor:
        """Return the subwords on the transformer's device. *Shape:* (subwords, 1)"""
        return on_device(subwords.ids[:, None], self._device)

    def _pool(self, hidden: Tensor, subwords: SubwordBatch) -> Tensor:
        """Return the features of tokens from the hidden of subwords. *Shape:* (tokens, width)"""
        pairs = subwords.first_subwords() if self.config.pooling == "first" else subwords
        indices = on_device(pairs.indices, self._device)
        tokens = Segments.of(pairs.tokens, pairs.n_tokens, device=self._device)
        return tokens.mean(hidden.index_select(0, indices))

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.transformer.parameters()).device
        return device

    def mixes_precision(self, device: torch.device) -> bool:
        """Return whether the transformer computes in bfloat16 on a device."""
        if self.config.mixed_precision == "gpu":
            # The first GPUs with bfloat16 are of compute capability 8.0.
            return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        if self.config.mixed_precision and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise RemedyError(
                "spacy_tener.TransformerEmbed.v1: mixed_precision is true, but this GPU does not have bfloat16",
                'Set mixed_precision = "gpu", which leaves it off on such a GPU, or false.',
            )
        return self.config.mixed_precision

    def max_subwords(self, device: torch.device) -> int:
        """Return how many subwords are read at once."""
        if device.type != "cpu" and torch.is_grad_enabled():
            # Activations are kept for the gradient, in one call or in several.
            return sys.maxsize
        return _MAX_POSITIONS["cpu" if device.type == "cpu" else "cuda"]

    def _precision(self, device: torch.device) -> AbstractContextManager[None]:
        return autocast_to_bfloat16(device) if self.mixes_precision(device) else nullcontext()

    def _run_in_batches(
        self, subwords: SubwordBatch, inputs: Tensor, compute: Callable[[Tensor, Tensor | None], Tensor]
    ) -> Tensor:
        """Return what is computed for windows of similar length, some at a time.

        inputs (Tensor): Of all subwords. *Shape:* (subwords, n)
        RETURNS (Tensor): *Shape:* (subwords, width)
        """
        device = self._device
        if not len(subwords.lengths):
            return torch.zeros(0, self.transformer.config.hidden_size, device=device)
        bucket_cost = _SUBWORDS_PER_CALL["cpu" if device.type == "cpu" else "cuda"]
        ragged = Ragged.of(subwords.lengths, device=device, bucket_cost=bucket_cost, by_tokens=True)
        max_subwords = self.max_subwords(device)
        with self._precision(device):
            outputs = [
                torch.cat([compute(*part) for part in split_windows(windows[:, 0], bucket.key_mask, max_subwords)])
                for windows, bucket in zip(ragged.pad(inputs[:, None]), ragged.buckets, strict=True)
            ]
        return ragged.join([part[:, None] for part in outputs])

    def _run_all_layers(self, ids: Tensor, key_mask: Tensor | None) -> Tensor:
        """Return the hidden of windows of one length, the mean of some layers.

        ids (Tensor): *Shape:* (windows, length, 1)
        key_mask (Optional[Tensor]): That of the windows' bucket.
        RETURNS (Tensor): *Shape:* (windows, length, width)
        """
        mask = torch.ones_like(ids[..., 0]) if key_mask is None else (key_mask[:, 0, 0] == 0.0).long()
        return mean_of_layers(self.transformer, ids[..., 0], mask, self.config.layers).float()


def split_windows(windows: Tensor, masks: Tensor | None, max_subwords: int) -> Iterator[tuple[Tensor, Any]]:
    """Yield some windows of one length at a time, with their masks.

    windows (Tensor): *Shape:* (windows, length, ...)
    masks (Optional[Tensor]): One for each window, if there are any.
    max_subwords (int): Maximum number of subwords.
    """
    parts = windows.split(max(1, max_subwords // windows.shape[1]))
    yield from zip(parts, [None] * len(parts) if masks is None else masks.split(len(parts[0])), strict=True)


def mean_of_layers(transformer: Callable[..., Any], ids: Tensor, mask: Tensor, layers: int | Sequence[int]) -> Tensor:
    """Return the mean of a transformer's last layers, or of those with these numbers.

    ids, mask (Tensor): *Shape:* (windows, length)
    RETURNS (Tensor): *Shape:* (windows, length, width)
    """
    output = transformer(input_ids=ids, attention_mask=mask, output_hidden_states=layers != 1, return_dict=True)
    last: Tensor = output.last_hidden_state
    if layers == 1:
        return last
    states = output.hidden_states
    if states is None:
        raise RemedyError(
            "The transformer returns its last layer only", "Set layers to 1, or name another transformer."
        )
    return mean_of_states(states, layers)


def mean_of_states(states: Sequence[Tensor], layers: int | Sequence[int]) -> Tensor:
    """Return the mean of the last states, or of those with these indices. *Shape:* (windows, length, width)"""
    chosen = states[-layers:] if isinstance(layers, int) else [states[layer] for layer in layers]
    return torch.stack(list(chosen)).mean(dim=0)


def to_transformers(weights: BertWeights) -> tuple[Any, Any]:
    """Return multilingual E5 as a `BertModel` with the weights in float32, and its tokenizer."""
    from tokenizers import Tokenizer

    library: Any = import_module("transformers")
    subwords, kinds = weights.vocabulary.size, weights.vector("emb.type").size // weights.width
    config = library.BertConfig(
        vocab_size=subwords,
        hidden_size=weights.width,
        num_hidden_layers=weights.layers,
        num_attention_heads=weights.heads,
        intermediate_size=weights.vector("l0.fi.b").size,
        max_position_embeddings=weights.longest,
        type_vocab_size=kinds,
        layer_norm_eps=weights.epsilon,
    )
    model = library.BertModel(config)
    # Its pooler, of which nothing is read, stays random.
    model.load_state_dict(
        {name_in_transformers(name): _tensor(weights, name) for name in tensor_names(weights.layers)}, strict=False
    )
    tokenizer = Tokenizer.from_buffer(weights.vocabulary.json)
    longest = weights.longest
    return model, library.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=longest, **_E5_SPECIAL_TOKENS
    )


def keep_embeddings(model: Any, subwords: IntArray) -> None:
    """Remove the rows of all subwords but these, in this order."""
    rows = model.get_input_embeddings().weight.detach()[torch.from_numpy(subwords).to(model.device)]
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(rows.clone(), freeze=False))
    model.config.vocab_size = len(subwords)


def _tensor(weights: BertWeights, name: str) -> torch.Tensor:
    matrix = weights.tensors[name]
    return torch.from_numpy(matrix.rows() if isinstance(matrix, Blocks) else matrix.copy())
