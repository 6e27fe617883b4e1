"""Registered TENER architectures, for `@architectures` in a config.

* `spacy_tener.TENER.v1`: an embedder with TENER's transformer encoder. It is the default `tok2vec` of `tener_ner`.
* `spacy_tener.TransformerEncoder.v1`: the transformer encoder alone. Combine it with any embedder, for example as the
  `encode` layer in spaCy's `Tok2Vec`.
* `spacy_tener.CharTransformer.v1`: an embedder that encodes each token's characters with a transformer.

Each function returns a Thinc model. On a CPU, the model predicts with the NumPy implementation in `tener_numpy`. The
torch modules in `tener_torch` are only created for training and for GPUs, so that trained pipelines run without torch.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pydantic import PositiveInt

from ...embedders.char_embed import build_char_embed
from ...embedders.spelling import spelling_embedder
from ...nn.compose import chain_layers, ragged_layer
from ...nn.shim import EmbedModel, RaggedModel
from ...validation import Probability, SettingError, validated
from .tener_config import TransformerConfig
from .tener_numpy import TransformerEncoder as TransformerPredictor

if TYPE_CHECKING:
    from ...embedders.spelling_torch import CharacterEncoder
    from .tener_torch import TransformerEncoder


@validated("spacy_tener.TENER.v1")
def build_tener(
    embed: EmbedModel | None = None,
    width: PositiveInt = 128,
    layers: PositiveInt = 1,
    heads: PositiveInt = 4,
    ff_width: PositiveInt | None = None,
    dropout: Probability = 0.15,
    attention_dropout: Probability | None = None,
    adapted: bool = True,
    scaled: bool | None = None,
) -> EmbedModel:
    """Construct TENER: an embedder, a linear layer, and a transformer encoder with direction-aware relative positions.

    Registered as `spacy_tener.TENER.v1`. See section 3 of Yan et al. (2019, https://arxiv.org/abs/1911.04474). The
    defaults are the paper's hyperparameters for the Weibo corpus. `spacy_tener.CRFTagger.v1` adds the CRF. Set `adapted
    = false` for the vanilla transformer, the baseline in the paper.

    embed (Optional[Model[List[Doc], List[Floats2d]]]): The embedder. None for `spacy_tener.CharEmbed.v1` with its
        defaults.
    width (int): Transformer hidden size d. A linear layer projects the embeddings to this size.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h. Must divide `width`. Adapted attention also requires an even head width
        d_k, which is `width / heads`.
    ff_width (Optional[int]): Feed-forward hidden size. None for twice the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    adapted (bool): If True, use TENER's adapted attention with relative positions (eq. 16 to 19). If False, use vanilla
        attention (eq. 1 to 6) with sinusoidal positions (eq. 8, 9).
    scaled (Optional[bool]): Whether to divide the attention scores by `sqrt(d_k)`. None to scale only vanilla
        attention, as the paper does.
    RETURNS (Model[List[Doc], List[Floats2d]]): The model, which returns a vector for each token. *Shape:* (tokens,
        width)
    """
    config = TransformerConfig(
        width=width,
        layers=layers,
        heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        adapted=adapted,
        scaled=scaled,
    )
    if embed is None:
        embed = build_char_embed()
    return chain_layers(embed, _transformer_layer(config))


@validated("spacy_tener.TransformerEncoder.v1")
def build_transformer_encoder(
    width: PositiveInt = 128,
    layers: PositiveInt = 1,
    heads: PositiveInt = 4,
    ff_width: PositiveInt | None = None,
    dropout: Probability = 0.15,
    attention_dropout: Probability | None = None,
    adapted: bool = True,
    scaled: bool | None = None,
) -> RaggedModel:
    """Construct TENER's transformer encoder without an embedder.

    Registered as `spacy_tener.TransformerEncoder.v1`. The encoder takes the vectors of any embedder as input.
    `spacy_tener.TENER.v1` has the same arguments and defaults.

    width (int): Transformer hidden size d. A linear layer projects the input vectors to this size.
    layers (int): Number of transformer layers.
    heads (int): Number of attention heads h. Must divide `width`. Adapted attention also requires an even head width
        d_k, which is `width / heads`.
    ff_width (Optional[int]): Feed-forward hidden size. None for twice the width.
    dropout (float): Feed-forward dropout rate.
    attention_dropout (Optional[float]): Attention dropout rate. None for the same as `dropout`.
    adapted (bool): If True, use TENER's adapted attention with relative positions (eq. 16 to 19). If False, use vanilla
        attention (eq. 1 to 6) with sinusoidal positions (eq. 8, 9).
    scaled (Optional[bool]): Whether to divide the attention scores by `sqrt(d_k)`. None to scale only vanilla
        attention, as the paper does.
    RETURNS (Model[List[Floats2d], List[Floats2d]]): The encoder. *Shape:* (tokens, input width) to (tokens, width)
    """
    config = TransformerConfig(
        width=width,
        layers=layers,
        heads=heads,
        ff_width=ff_width,
        dropout=dropout,
        attention_dropout=attention_dropout,
        adapted=adapted,
        scaled=scaled,
    )
    return _transformer_layer(config)


def _transformer_layer(config: TransformerConfig) -> RaggedModel:
    build_module = partial(_build_transformer, config=config)
    make_predictor = partial(TransformerPredictor, config)
    return ragged_layer("transformer_encoder", build_module, make_predictor, width_out=config.width)


def _build_transformer(*, config: TransformerConfig, nI: int, nO: int) -> TransformerEncoder:
    from .tener_torch import TransformerEncoder

    return TransformerEncoder(config, input_width=nI)


@validated("spacy_tener.CharTransformer.v1")
def build_char_transformer(
    adapted: bool = True,
    heads: PositiveInt = 3,
    ff_width: PositiveInt = 60,
    inner_dropout: Probability = 0.15,
    char_width: PositiveInt = 30,
    width: PositiveInt = 30,
    digits: bool = True,
    dropout: Probability = 0.3,
    char_dropout: Probability = 0.01,
) -> EmbedModel:
    """Construct an embedder that encodes each token's characters with a transformer layer.

    Registered as `spacy_tener.CharTransformer.v1`. Max pooling and a linear layer reduce the characters to one vector
    per token. See sections 3.1 and 4.4 of Yan et al. (2019, https://arxiv.org/abs/1911.04474). The defaults are those
    in the paper's supplement (section 6.1). With these defaults, the embedder has 6,600 parameters, or 8,460 with
    `adapted = false`, as stated in the supplement. The character embeddings are not counted. Unknown characters and
    long tokens are treated as in `spacy_tener.CharCNN.v1`.

    adapted (bool): If True, use TENER's adapted attention. If False, use vanilla attention.
    heads (int): Number of attention heads. Must divide `char_width`.
    ff_width (int): Feed-forward hidden size.
    inner_dropout (float): Feed-forward and attention dropout rate.
    char_width (int): Character embedding width, which is also the transformer's hidden size.
    width (int): Output width.
    digits (bool): Whether to replace every digit with 0.
    dropout (float): Dropout rate for the character embeddings and the output.
    char_dropout (float): Probability of replacing a character with the unknown character in training.
    RETURNS (Model[List[Doc], List[Floats2d]]): The embedder. *Shape:* (tokens, width)
    """
    if char_width % heads:
        raise SettingError(f"char_width must be a multiple of heads ({heads}); got {char_width}")
    config = TransformerConfig(width=char_width, heads=heads, ff_width=ff_width, dropout=inner_dropout, adapted=adapted)
    return spelling_embedder(
        partial(make_char_transformer, config, width),
        partial(TransformerPredictor, config),
        char_width=char_width,
        width=width,
        digits=digits,
        dropout=dropout,
        char_dropout=char_dropout,
    )


def make_char_transformer(config: TransformerConfig, width: int) -> CharacterEncoder:
    """Build the torch module for `spacy_tener.CharTransformer.v1`, without its character embeddings.

    config (TransformerConfig): Transformer hyperparameters. `config.width` is the character embedding width.
    width (int): Output width.
    """
    from ...embedders.spelling_torch import CharacterEncoder
    from .tener_torch import TransformerEncoder

    return CharacterEncoder(TransformerEncoder(config), hidden=config.width, width=width)
