"""The embedder of a pretrained transformer: from Docs to its features, one row of floats per token."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

from spacy.tokens import Doc
from thinc.api import Model
from thinc.types import Floats2d

from ..bridge import EmbedModel, TorchShim, split, token_counts, torch_shim
from ..embed.vocabulary import check_rates, run_module
from .files import load_pretrained, longest_window, put_together, take_apart
from .module import Pooling, PretrainedTransformer
from .pieces import PieceReader


def build_transformer_embed(
    name: str | Path | None = None,
    frozen: bool = False,
    pooling: Pooling = "mean",
    layers: int = 1,
    dropout: float = 0.1,
    window: int = 512,
    overlap: int = 64,
    mixed_precision: bool = False,
    cache: int = 1000,
) -> EmbedModel:
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
    frozen (bool): Leave the transformer as it is: its weights do not change, and no gradient is computed for it.
    pooling (str): How the pieces of a token become its row: their "mean", or the "first" of them.
    layers (int): How many layers, counted from the last, are averaged.
    dropout (float): Dropout on the features. In training a transformer that is not frozen has its own besides.
    window (int): The longest stretch of word pieces that is read at once, special pieces among them, unless the
        transformer itself bears less. Longer texts are read in windows that overlap. `tener_ner` hands over windows of
        200 tokens, so that this is for other components, and for tokens of very many pieces.
    overlap (int): Word pieces of context on each side of what is read from such a window.
    mixed_precision (bool): Let the transformer compute in bfloat16 where that is safe, which new GPUs do much faster.
    cache (int): Where the transformer is frozen: at most so many megabytes of features are kept while training, which
        reads each text in every epoch, and the texts of dev as often. A token takes 4 bytes for each of its features.
        0 keeps none. A trained pipeline that is loaded keeps none.
    """
    check_rates("TransformerEmbed", dropout=dropout)
    if pooling not in get_args(Pooling):
        raise ValueError(f"TransformerEmbed needs a pooling that is one of {get_args(Pooling)}, but got {pooling!r}.")
    if layers < 1:
        raise ValueError(f"TransformerEmbed needs layers of at least 1, but got {layers}.")
    if overlap < 0 or window < 2 * overlap + 16:
        raise ValueError(
            f"TransformerEmbed needs a window of at least twice its overlap and 16 pieces more, but got {window} with "
            f"an overlap of {overlap}."
        )
    if cache < 0:
        raise ValueError(f"TransformerEmbed needs a cache of 0 megabytes or more, but got {cache}.")
    assemble = partial(
        _assemble,
        frozen=frozen,
        pooling=pooling,
        layers=layers,
        dropout=dropout,
        window=window,
        overlap=overlap,
        mixed_precision=mixed_precision,
        cache=cache * 1_000_000,
    )
    return Model(
        "transformer_embed",
        _forward,
        init=partial(_init, name=name, assemble=assemble),
        dims={"nO": None},
        shims=[TorchShim(partial(_rebuild, assemble=assemble))],
    )


def _assemble(
    transformer: Any, tokenizer: Any, *, layers: int, window: int, overlap: int, **settings: Any
) -> PretrainedTransformer:
    available = transformer.config.num_hidden_layers
    if layers > available:
        raise ValueError(f"TransformerEmbed is asked for {layers} layers of a transformer that has {available}.")
    longest = min(window, longest_window(transformer, tokenizer))
    reader = PieceReader.of(tokenizer, longest=longest, overlap=min(overlap, longest // 4))
    return PretrainedTransformer(transformer, reader, layers=layers, **settings)


def _rebuild(
    *, config: str, tokenizer: dict[str, bytes], assemble: Callable[..., PretrainedTransformer]
) -> PretrainedTransformer:
    return assemble(*put_together(config, tokenizer))


def _init(
    model: EmbedModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    name: str | Path | None,
    assemble: Callable[..., PretrainedTransformer],
) -> None:
    transformer, tokenizer = load_pretrained(name)
    parts: Any = take_apart(transformer, tokenizer)
    torch_shim(model).set_module(assemble(transformer, tokenizer), parts)
    model.set_dim("nO", transformer.config.hidden_size, force=True)


def _forward(
    model: EmbedModel, docs: list[Doc], is_train: bool
) -> tuple[list[Floats2d], Callable[[list[Floats2d]], list[Doc]]]:
    if not docs:
        return [], lambda dY: docs
    shim, lengths = torch_shim(model), token_counts(docs)
    module: PretrainedTransformer = shim.module
    if module.frozen:
        with shim.training() if is_train else contextlib.nullcontext():
            return split(model.ops, module.forward_frozen(docs), lengths), lambda dY: docs
    pieces = module.reader(docs)
    outputs, learn = run_module(model, is_train, lengths, pieces)

    def backprop(dY: list[Floats2d]) -> list[Doc]:
        if len(pieces.rows):
            learn(dY)
        return docs

    return outputs, backprop
