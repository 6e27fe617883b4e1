"""The embedder of a pretrained transformer: from Docs to its features, one row of floats per token."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..settings import expand_config
from ..shims.bridge import EmbedModel, TorchShim, run_module, token_counts, torch_shim
from .files import load_pretrained, longest_window, put_together, take_apart
from .module import PretrainedTransformer, TransformerEmbedConfig
from .pieces import PieceReader


@expand_config()
def build_transformer_embed(name: str | Path | None = None, *, config: TransformerEmbedConfig) -> EmbedModel:
    """Embed each token by what a pretrained transformer makes of it where it stands.

    Registered as `spacy_tener.TransformerEmbed.v1`. Beside another embedder in `spacy_tener.JoinEmbed.v1` its features
    join that one's rows, as in the papers; alone it is a whole `tok2vec`. Texts are cut into word pieces as they are
    written, also where tokens are single characters: a token has the pieces that cover some of it, several characters
    may share one, and a token without any, such as white space, is a row of zeros.

    Weights, config and tokenizer are saved with the pipeline, which needs no `name` any more once it is trained. The
    parameters' names begin with `transformer`: `rates = {"transformer.*": 0.05}` of `spacy_tener.Adam.v1` gives them a
    rate of their own.

    name (Optional[Union[str, Path]]): A directory with a model and a fast tokenizer of the library transformers, or its
        name on the Hugging Face Hub. Read by `initialize` only.
    """
    return Model(
        "transformer_embed",
        _forward,
        init=partial(_init, name=name, config=config),
        dims={"nO": None},
        shims=[TorchShim(partial(_rebuild, embed=config))],
    )


def _rebuild(*, config: str, tokenizer: dict[str, bytes], embed: TransformerEmbedConfig) -> PretrainedTransformer:
    return _assemble(*put_together(config, tokenizer), embed)


def _assemble(transformer: Any, tokenizer: Any, config: TransformerEmbedConfig) -> PretrainedTransformer:
    available = transformer.config.num_hidden_layers
    if config.layers > available:
        raise ValueError(
            f"spacy_tener.TransformerEmbed.v1: layers must be at most {available}, as many as the transformer has; "
            f"got {config.layers}."
        )
    longest = min(config.window, longest_window(transformer, tokenizer))
    reader = PieceReader.of(tokenizer, longest=longest, overlap=min(config.overlap, longest // 4))
    return PretrainedTransformer(transformer, reader, config)


def _init(
    model: EmbedModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    name: str | Path | None,
    config: TransformerEmbedConfig,
) -> None:
    transformer, tokenizer = load_pretrained(name)
    parts: Any = take_apart(transformer, tokenizer)
    torch_shim(model).set_module(_assemble(transformer, tokenizer, config), parts)
    model.set_dim("nO", transformer.config.hidden_size, force=True)


def _forward(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    if not docs:
        return [], lambda dY: docs
    outputs, backprop_module = run_module(model, is_train, token_counts(docs), [], docs)

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        backprop_module(dY)
        return docs

    return outputs, backprop
