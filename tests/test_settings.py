"""Settings that make no sense are refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spacy_tener.models.embed.char import build_char_embed, build_word_char_embed
from spacy_tener.models.embed.characters import (
    build_char_cnn,
    build_char_transformer,
    build_radical_embed,
)
from spacy_tener.models.encoders import build_grn, build_tener
from spacy_tener.models.lattice import build_mect
from spacy_tener.models.tagger import build_crf_tagger
from spacy_tener.models.transformer.embed import build_transformer_embed
from spacy_tener.settings import (
    AtssaConfig,
    FlatConfig,
    GRNConfig,
    MectConfig,
    TransformerConfig,
)


@pytest.mark.parametrize(
    ("make", "wrong", "message"),
    [
        (MectConfig, {"width": 10, "heads": 3}, "width must be a multiple of heads, which is 3; got 10"),
        (MectConfig, {"width": 9, "heads": 3}, "width must be even"),
        (MectConfig, {"layers": 0}, "layers must be at least 1"),
        (MectConfig, {"ff_width": 0}, "ff_width must be at least 1"),
        (MectConfig, {"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        (MectConfig, {"attention_dropout": -0.1}, "attention_dropout must be at least 0"),
        (MectConfig, {"random_attention": -1}, "random_attention must be at least 0; got -1"),
        (MectConfig, {"streams": "double"}, "streams must be one of 'cross', 'parallel', 'single'; got 'double'"),
        (FlatConfig, {"width": 30}, "width must be a multiple of heads, which is 8; got 30"),
        (FlatConfig, {"width": 15, "heads": 5}, "width must be even"),
        (FlatConfig, {"heads": 0}, "heads must be at least 1; got 0"),
        (FlatConfig, {"distances": ("hh", "ab")}, "one or more of hh, ht, th, tt, each once; got hh, ab"),
        (AtssaConfig, {"width": 0}, "width must be at least 1; got 0"),
        (AtssaConfig, {"width": 24, "heads": 8}, "width must be an even number times heads, which is 8"),
        (AtssaConfig, {"alpha": 0.0}, "alpha must be above 0"),
        (AtssaConfig, {"tau": 0.0}, "tau must be above 0"),
        (AtssaConfig, {"penalty": -1.0}, "penalty must be at least 0"),
        (AtssaConfig, {"k": -1}, "k must be at least 0"),
        (AtssaConfig, {"k": 0, "selection": "top_k"}, "k must be at least 1 where the k largest scores are kept"),
        (AtssaConfig, {"selection": "sparse"}, "selection must be one of 'adaptive', 'top_k', 'none'; got 'sparse'"),
        (AtssaConfig, {"threshold": 0.0}, "threshold must be one of 'adaptive', 'fixed'"),
        (TransformerConfig, {"width": 130}, "width must be a multiple of heads, which is 4; got 130"),
        (TransformerConfig, {"width": 12}, "width must be an even number times heads"),
        (TransformerConfig, {"width": 15, "heads": 5, "adapted": False}, "width must be even"),
        (GRNConfig, {"width": 0}, "width must be at least 1; got 0"),
        (GRNConfig, {"dropout": 1.0}, r"dropout must be at least 0 and below 1; got 1.0"),
        (GRNConfig, {"branches": (1, 2)}, r"branches must be odd numbers of tokens; got \(1, 2\)"),
        (GRNConfig, {"branches": (-1,)}, "branches must be odd numbers of tokens"),
        (GRNConfig, {"relation": "sum"}, "relation must be one of 'gated', 'mean', 'attention'; got 'sum'"),
        (GRNConfig, {"relation": None, "branches": ()}, "relation must be one of .* where there are no branches"),
        (build_tener, {"width": 15}, "spacy_tener.TENER.v1: width must be a multiple of heads"),
        (build_grn, {"width": 0}, "spacy_tener.GRN.v1: width must be at least 1"),
        (build_mect, {"width": 15}, "spacy_tener.MECT.v1: width must be a multiple of heads"),
        (build_char_embed, {"width": 0}, "spacy_tener.CharEmbed.v1: width must be at least 1; got 0"),
        (build_char_embed, {"bigram_width": -1}, "bigram_width must be at least 0; got -1"),
        (
            build_char_embed,
            {"bigram_width": 0, "bigram_vectors": "x.vec"},
            "bigram_width must be above 0 if there are bigram_vectors",
        ),
        (build_char_embed, {"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
        (build_char_embed, {"word_dropout": -0.1}, "word_dropout must be"),
        (build_char_embed, {"bigram_dropout": 1.5}, "bigram_dropout must be"),
        (build_word_char_embed, {"width": 0}, "spacy_tener.WordCharEmbed.v1: width must be at least 1"),
        (build_word_char_embed, {"project_to": 0}, "project_to must be at least 1"),
        (build_word_char_embed, {"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
        (build_word_char_embed, {"word_dropout": -0.1}, "word_dropout must be"),
        (build_char_cnn, {"filters": 0}, "spacy_tener.CharCNN.v1: filters must be at least 1; got 0"),
        (build_char_cnn, {"width": 0}, "width must be at least 1"),
        (build_char_cnn, {"window": 2}, "window must be an odd number"),
        (build_char_cnn, {"window": -1}, "window must be an odd number"),
        (build_char_cnn, {"char_dropout": 1.0}, "char_dropout must be at least 0 and below 1"),
        (build_char_transformer, {"heads": 4}, "spacy_tener.CharTransformer.v1: width must be a multiple of heads"),
        (build_char_transformer, {"inner_dropout": 1.0}, "dropout must be at least 0"),
        (build_char_transformer, {"width": -1}, "width must be at least 1"),
        (build_radical_embed, {"width": 0}, "width"),
        (build_radical_embed, {"radical_width": 0}, "radical_width"),
        (build_radical_embed, {"filters": 0}, "filters"),
        (build_radical_embed, {"window": 2}, "window"),
        (build_radical_embed, {"dropout": 1.0}, "dropout"),
        (build_radical_embed, {"radical_dropout": -0.1}, "radical_dropout"),
        (build_transformer_embed, {"layers": 0}, "layers must be at least 1; got 0"),
        (build_transformer_embed, {"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        (build_transformer_embed, {"pooling": "max"}, "pooling must be one of"),
        (
            build_transformer_embed,
            {"window": 64, "overlap": 30},
            "window must be at least 76, twice the overlap and 16 pieces; got 64",
        ),
        (build_transformer_embed, {"overlap": -1}, "overlap must be at least 0; got -1"),
        (build_transformer_embed, {"cache": -1}, "cache must be at least 0; got -1"),
        (build_crf_tagger, {"dropout": 1.0}, r"spacy_tener\.CRFTagger\.v1: dropout must be at least 0"),
        (build_crf_tagger, {"dropout": -0.1}, r"spacy_tener\.CRFTagger\.v1: dropout must be at least 0"),
        (build_crf_tagger, {"dropout": 40}, r"spacy_tener\.CRFTagger\.v1: dropout must be at least 0"),
    ],
)
def test_a_wrong_setting_is_named(make: Callable[..., Any], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**wrong)
