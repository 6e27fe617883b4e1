"""Settings that make no sense are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from spacy_tener.settings import (
    AtssaConfig,
    FlatConfig,
    GRNConfig,
    IDCNNConfig,
    MectConfig,
    Settings,
    TransformerConfig,
)


@pytest.mark.parametrize(
    ("config", "wrong", "message"),
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
        (IDCNNConfig, {"width": 0}, "width must be at least 1; got 0"),
        (IDCNNConfig, {"iterations": 0}, "iterations must be at least 1; got 0"),
        (IDCNNConfig, {"window": 1}, "window must be an odd number of tokens, at least 3; got 1"),
        (IDCNNConfig, {"window": 4}, "window must be an odd number of tokens, at least 3; got 4"),
        (IDCNNConfig, {"dilations": ()}, r"dilations must be numbers of at least 1; got \(\)"),
        (IDCNNConfig, {"dilations": (1, 0)}, r"dilations must be numbers of at least 1; got \(1, 0\)"),
        (IDCNNConfig, {"dropout": 1.0}, "dropout must be at least 0 and below 1; got 1.0"),
    ],
)
def test_a_wrong_setting_is_named(config: type[Settings], wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(**wrong)
