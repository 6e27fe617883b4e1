"""The torch module of `spacy_tener.TransformerEmbed.v1`.

It applies a pretrained transformer to windows of subword tokens, and pools the hidden states for each spaCy token:

    Docs -> windows of subword tokens -> hidden states of subword tokens -> token features

`to_transformers` converts the weights of multilingual E5 to a model from the library transformers.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import Any

import torch
from spacy.tokens import Doc
from torch import Tensor, nn

from ..errors import UserError
from ..features.cache import FeatureCache, cache_key
from ..features.subwords import SubwordBatch, SubwordTokenizer
from ..nn.devices_torch import autocast_to_bfloat16, on_device
from ..nn.layers_torch import Dropout
from ..nn.ragged_torch import Ragged, Segments
from ..onnx.published_weights import BertWeights, Blocks, name_in_transformers, tensor_names
from ..types import IntArray
from .transformer_embed_config import TransformerEmbedConfig

# Maximum batch size during inference, in padded positions (windows times length). It limits the memory usage.
_MAX_POSITIONS = {"cpu": 4096, "cuda": 1 << 16}
# Fixed cost of each transformer call, measured in padded positions. It determines whether windows with different
# lengths are padded to the same length, or processed by separate calls.
_SUBWORDS_PER_CALL = {"cpu": 32, "cuda": 1 << 14}
_E5_SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class PretrainedTransformer(nn.Module):
    """A pretrained transformer with a tokenizer, which computes features for spaCy tokens.

    A token's features are the mean hidden state of its subword tokens, or the first subword token's hidden state.
    Tokens without subword tokens get zeros. The outputs of frozen layers are cached during training.

    transformer (PreTrainedModel): A model from the library transformers. Its parameter names start with `transformer.`.
    subword_tokenizer (SubwordTokenizer): Splits Docs into windows of subword tokens.
    config (TransformerEmbedConfig): The embedder's options.
    """

    def __init__(self, transformer: Any, subword_tokenizer: SubwordTokenizer, config: TransformerEmbedConfig) -> None:
        super().__init__()
        self.transformer = transformer
        self.subword_tokenizer = subword_tokenizer
        self.config = config
        self.dropout = Dropout(config.dropout)
        self.cache = FeatureCache(config.cache * 1_000_000)
        # Use sparse gradients, because a batch contains only a few hundred distinct subword tokens. A dense gradient
        # has the size of the complete embedding table, which can be as large as all layers together. It would take most
        # of the time in a training step.
        self.transformer.get_input_embeddings().sparse = True
        self._frozen = [transformer] if config.frozen else self._lower_parts()
        for part in self._frozen:
            part.requires_grad_(False)

    def _lower_parts(self) -> list[nn.Module]:
        """Return the modules to freeze if `frozen_layers` is set: the embedding layer and the lowest layers."""
        n_layers = self.config.frozen_layers
        return [self.transformer.embeddings, *self.transformer.encoder.layer[:n_layers]] if n_layers else []

    def train(self, mode: bool = True) -> PretrainedTransformer:
        super().train(mode)
        for part in self._frozen:
            part.eval()
        return self

    def forward(self, docs: Sequence[Doc]) -> Tensor:
        """Return the features of all tokens in a batch of Docs, after dropout. *Shape:* (tokens, width)"""
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
        """Apply a function to Docs, using cached results where available.

        docs (Sequence[Doc]): The Docs.
        compute (Callable): Function that returns a tensor for each Doc.
        RETURNS (Tensor): The results for all Docs, concatenated.
        """
        return torch.cat(list(self.cache(list(map(cache_key, docs)), docs, compute, training=self.training)))

    def _features_of_docs(self, docs: Sequence[Doc]) -> list[Tensor]:
        """Return the token features for each Doc. *Shape:* (tokens, width) each"""
        return list(torch.split(self.features(self.subword_tokenizer(docs)), [len(doc) for doc in docs]))

    def _features_above_frozen(self, docs: Sequence[Doc]) -> Tensor:
        """Return the features of all tokens in a batch of Docs. *Shape:* (tokens, width)

        The output of the frozen layers is cached. Only the other layers are computed each time.
        """
        subwords = self.subword_tokenizer(docs)
        with torch.no_grad():
            lower = self._cached(docs, self._frozen_outputs)
        return self._pool(self._run_in_batches(subwords, lower, self._run_trained_layers), subwords)

    def _frozen_outputs(self, docs: Sequence[Doc]) -> list[Tensor]:
        """Return the frozen layers' output for the subword tokens in each Doc. *Shape:* (subwords, width) each"""
        subwords = self.subword_tokenizer(docs)
        hidden = self._run_in_batches(subwords, self._ids(subwords), self._run_frozen_layers)
        return list(torch.split(hidden, subwords.sizes.tolist()))

    def _run_frozen_layers(self, ids: Tensor, key_mask: Tensor | None) -> Tensor:
        """Run the embedding layer and the frozen layers on a padded batch.

        ids (Tensor): Subword token ids. *Shape:* (windows, length, 1)
        key_mask (Tensor | None): Additive attention mask: 0 for subword tokens, -inf for padding.
            None if there is no padding. *Shape:* (windows, 1, 1, length)
        RETURNS (Tensor): Hidden states after the last frozen layer. *Shape:* (windows, length, width)
        """
        hidden = self.transformer.embeddings(input_ids=ids[..., 0])
        if hasattr(self.transformer, "embeddings_project"):
            # In small ELECTRA models, the embeddings are narrower than the hidden states.
            hidden = self.transformer.embeddings_project(hidden)
        return self._run_layers(hidden, key_mask, slice(self.config.frozen_layers))[-1].float()

    def _run_trained_layers(self, hidden: Tensor, key_mask: Tensor | None) -> Tensor:
        """Run the layers above the frozen layers on a padded batch, and average the layers specified by the config.

        hidden (Tensor): Hidden states after the last frozen layer. *Shape:* (windows, length, width)
        key_mask (Tensor | None): The additive attention mask, as for `_run_frozen_layers`.
        RETURNS (Tensor): The averaged hidden states. *Shape:* (windows, length, width)
        """
        layers, first = self.config.layers, self.config.frozen_layers
        states = self._run_layers(hidden, key_mask, slice(first, None))
        return mean_of_states(
            states, layers if isinstance(layers, int) else [layer - first for layer in layers]
        ).float()

    def _run_layers(self, hidden: Tensor, key_mask: Tensor | None, part: slice) -> list[Tensor]:
        """Run a range of the transformer's layers on a padded batch.

        hidden (Tensor): Input of the first layer. *Shape:* (windows, length, width)
        key_mask (Tensor | None): The additive attention mask, as for `_run_frozen_layers`.
        part (slice): The range of layers.
        RETURNS (list[Tensor]): The input, followed by each layer's output. *Shape:* (windows, length, width) each
        """
        states = [hidden]
        for layer in self.transformer.encoder.layer[part]:
            output = layer(states[-1], key_mask)
            # A layer's return type depends on the transformers version.
            states.append(output[0] if isinstance(output, tuple) else output)
        return states

    def features(self, subwords: SubwordBatch) -> Tensor:
        """Return the features of all tokens, before dropout. *Shape:* (tokens, width)"""
        return self._pool(self._run_in_batches(subwords, self._ids(subwords), self._run_all_layers), subwords)

    def _ids(self, subwords: SubwordBatch) -> Tensor:
        """Return the ids of all subword tokens as a tensor on the transformer's device. *Shape:* (subwords, 1)"""
        return on_device(subwords.ids[:, None], self._device)

    def _pool(self, hidden: Tensor, subwords: SubwordBatch) -> Tensor:
        """Pool the hidden states of subword tokens to compute features for spaCy tokens. *Shape:* (tokens, width)"""
        pairs = subwords.first_subwords() if self.config.pooling == "first" else subwords
        indices = on_device(pairs.indices, self._device)
        tokens = Segments.of(pairs.tokens, pairs.n_tokens, device=self._device)
        return tokens.mean(hidden.index_select(0, indices))

    @property
    def _device(self) -> torch.device:
        device: torch.device = next(self.transformer.parameters()).device
        return device

    def mixes_precision(self, device: torch.device) -> bool:
        """Return whether mixed precision with bfloat16 is enabled on a device."""
        if self.config.mixed_precision == "gpu":
            # bfloat16 requires compute capability 8.0 (Ampere) for hardware support.
            return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
        if self.config.mixed_precision and device.type == "cuda" and not torch.cuda.is_bf16_supported():
            raise UserError(
                "spacy_tener.TransformerEmbed.v1: mixed_precision is true, but this GPU does not support bfloat16",
                'Set mixed_precision = false, or "gpu" to use it only on GPUs with bfloat16.',
            )
        return self.config.mixed_precision

    def max_subwords(self, device: torch.device) -> int:
        """Return the maximum number of padded positions that the transformer processes at once on a device."""
        if device.type != "cpu" and torch.is_grad_enabled():
            # During training, splitting a batch would not save memory, because the activations of all parts are stored
            # for the backward pass.
            return sys.maxsize
        return _MAX_POSITIONS["cpu" if device.type == "cpu" else "cuda"]

    def _precision(self, device: torch.device) -> AbstractContextManager[None]:
        return autocast_to_bfloat16(device) if self.mixes_precision(device) else nullcontext()

    def _run_in_batches(
        self, subwords: SubwordBatch, inputs: Tensor, compute: Callable[[Tensor, Tensor | None], Tensor]
    ) -> Tensor:
        """Apply a function to padded batches of windows, and return the concatenated results without padding.

        Windows with similar lengths are combined in a batch.

        subwords (SubwordBatch): The windows.
        inputs (Tensor): Ids or hidden states of all subword tokens. *Shape:* (subwords, n)
        compute (Callable): Function that takes a padded batch and its attention mask.
        RETURNS (Tensor): The results for all subword tokens. *Shape:* (subwords, width)
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
        """Run the complete transformer on a padded batch, and average the layers specified by the config.

        ids (Tensor): Subword token ids. *Shape:* (windows, length, 1)
        key_mask (Tensor | None): The additive attention mask, as for `_run_frozen_layers`.
        RETURNS (Tensor): The averaged hidden states. *Shape:* (windows, length, width)
        """
        mask = torch.ones_like(ids[..., 0]) if key_mask is None else (key_mask[:, 0, 0] == 0.0).long()
        return mean_of_layers(self.transformer, ids[..., 0], mask, self.config.layers).float()


def split_windows(windows: Tensor, masks: Tensor | None, max_subwords: int) -> Iterator[tuple[Tensor, Any]]:
    """Split a padded batch of windows into smaller batches, and yield each with its attention masks.

    windows (Tensor): The padded batch. *Shape:* (windows, length, ...)
    masks (Tensor | None): Each window's attention mask. None if there is no padding.
    max_subwords (int): Maximum number of padded positions in a batch. A batch has at least one window.
    """
    parts = windows.split(max(1, max_subwords // windows.shape[1]))
    yield from zip(parts, [None] * len(parts) if masks is None else masks.split(len(parts[0])), strict=True)


def mean_of_layers(transformer: Callable[..., Any], ids: Tensor, mask: Tensor, layers: int | Sequence[int]) -> Tensor:
    """Run a transformer, and return the average output of the specified layers.

    transformer (Callable): A model from the library transformers.
    ids (Tensor): Subword token ids. *Shape:* (windows, length)
    mask (Tensor): Attention mask: 1 for subword tokens, 0 for padding. *Shape:* (windows, length)
    layers (int | Sequence[int]): A number n for the last n layers, or a list with layer numbers. Layer 0 is the
        embedding layer.
    RETURNS (Tensor): The averaged hidden states. *Shape:* (windows, length, width)
    """
    output = transformer(input_ids=ids, attention_mask=mask, output_hidden_states=layers != 1, return_dict=True)
    last: Tensor = output.last_hidden_state
    if layers == 1:
        return last
    states = output.hidden_states
    if states is None:
        raise UserError(
            "The transformer only returns the output of its last layer, but `layers` specifies other layers",
            "Set layers = 1, or use another transformer.",
        )
    return mean_of_states(states, layers)


def mean_of_states(states: Sequence[Tensor], layers: int | Sequence[int]) -> Tensor:
    """Return the average hidden states of the specified layers.

    states (Sequence[Tensor]): Hidden states of all layers, starting with layer 0. *Shape:* (windows, length, width)
        each
    layers (int | Sequence[int]): A number n for the last n layers, or a list with layer numbers.
    RETURNS (Tensor): The averaged hidden states. *Shape:* (windows, length, width)
    """
    chosen = states[-layers:] if isinstance(layers, int) else [states[layer] for layer in layers]
    return torch.stack(list(chosen)).mean(dim=0)


def to_transformers(weights: BertWeights) -> tuple[Any, Any]:
    """Convert multilingual E5 to the format of Hugging Face transformers. Return a float32 `BertModel` and its
    tokenizer."""
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
    # `strict=False`, because E5 has no weights for BertModel's pooler, which is not used.
    model.load_state_dict(
        {name_in_transformers(name): _tensor(weights, name) for name in tensor_names(weights.layers)}, strict=False
    )
    tokenizer = Tokenizer.from_buffer(weights.vocabulary.json)
    longest = weights.longest
    return model, library.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=longest, **_E5_SPECIAL_TOKENS
    )


def keep_embeddings(model: Any, subwords: IntArray) -> None:
    """Remove all subword embeddings from a transformer except the selected ones.

    model (PreTrainedModel): The transformer, which is modified in place.
    subwords (IntArray): Ids of the subwords to keep. The position in the array is the subword's new id.
        *Shape:* (subwords,)
    """
    rows = model.get_input_embeddings().weight.detach()[torch.from_numpy(subwords).to(model.device)]
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(rows.clone(), freeze=False))
    model.config.vocab_size = len(subwords)


def _tensor(weights: BertWeights, name: str) -> torch.Tensor:
    matrix = weights.tensors[name]
    return torch.from_numpy(matrix.rows() if isinstance(matrix, Blocks) else matrix.copy())
