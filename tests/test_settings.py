"""Invalid settings raise errors that contain the name of the setting, its value, and the allowed values."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from spacy_tener.architectures.flat.flat import build_flat, build_flat_atssa, build_mect
from spacy_tener.architectures.grn.grn import build_grn
from spacy_tener.architectures.grn.grn_config import GRNConfig
from spacy_tener.architectures.tagger import build_crf_tagger
from spacy_tener.architectures.tener.tener import build_char_transformer, build_tener
from spacy_tener.architectures.tener.tener_config import TransformerConfig
from spacy_tener.embedders.char_embed import build_char_embed, build_word_char_embed
from spacy_tener.embedders.lexicon_embed import build_lexicon_embed
from spacy_tener.embedders.onnx_embed import build_onnx_embed
from spacy_tener.embedders.radical_embed import build_radical_embed
from spacy_tener.embedders.segment_embed import build_segment_embed
from spacy_tener.embedders.spelling import build_char_cnn
from spacy_tener.embedders.transformer_embed import build_transformer_embed
from spacy_tener.errors import UserError
from spacy_tener.onnx.e5 import e5
from spacy_tener.onnx.sources import onnx_encoder
from spacy_tener.optim.optimizers import triangular
from spacy_tener.pipeline.learning.distillation import load_teacher

POSITIVE = "must be greater than 0"
NOT_NEGATIVE = "must be greater than or equal to 0"
BELOW = "must be less than 1"
INTEGER = "must be a valid integer"
FLOAT = "must be a valid number"
FINITE = "must be a finite number"

INVALID_SETTINGS: list[tuple[Callable[..., Any], dict[str, Any], str]] = [
    (build_mect, {"width": 10, "heads": 3}, "MECT.v1: width must be a multiple of heads (3); got 10"),
    (build_mect, {"width": 9, "heads": 3}, "MECT.v1: width must be even, since position embeddings are pairs"),
    (build_mect, {"layers": 0}, f"MECT.v1: layers {POSITIVE}; got 0"),
    (build_mect, {"ff_width": 0}, f"MECT.v1: ff_width {POSITIVE}; got 0"),
    (build_mect, {"dropout": 1.0}, f"MECT.v1: dropout {BELOW}; got 1.0"),
    (build_mect, {"dropout": float("nan")}, f"MECT.v1: dropout {FINITE}; got nan"),
    (build_mect, {"attention_dropout": -0.1}, f"MECT.v1: attention_dropout {NOT_NEGATIVE}; got -0.1"),
    (build_mect, {"random_attention": -1}, f"MECT.v1: random_attention {NOT_NEGATIVE}; got -1"),
    (build_mect, {"streams": "single"}, "MECT.v1: streams must be callable; got 'single'"),
    (build_mect, {"radicals": 3}, "MECT.v1: radicals must be an instance of Model; got 3"),
    (build_flat, {"width": 30}, "FLAT.v1: width must be a multiple of heads (8); got 30"),
    (build_flat, {"width": 15, "heads": 5}, "FLAT.v1: width must be even"),
    (build_flat, {"heads": 0}, f"FLAT.v1: heads {POSITIVE}; got 0"),
    (build_flat, {"distances": ["hh", "ab"]}, "FLAT.v1: distances.1 must be 'hh', 'ht', 'th' or 'tt'; got 'ab'"),
    (build_flat, {"distances": ["hh", "hh"]}, "FLAT.v1: distances must not contain duplicates; got ['hh', 'hh']"),
    (build_flat, {"distances": []}, "FLAT.v1: distances must not be empty; list at least one of hh, ht, th, tt"),
    (build_flat_atssa, {"width": 24}, "FLAT_ATSSA.v1: width must be a multiple of 2 * heads (16)"),
    (build_flat_atssa, {"alpha": 0.0}, f"FLAT_ATSSA.v1: alpha {POSITIVE}; got 0.0"),
    (build_flat_atssa, {"tau": 0.0}, f"FLAT_ATSSA.v1: tau {POSITIVE}; got 0.0"),
    (build_flat_atssa, {"penalty": -1.0}, f"FLAT_ATSSA.v1: penalty {NOT_NEGATIVE}; got -1.0"),
    (build_flat_atssa, {"selection": "sparse"}, "selection must be 'adaptive' or 'none'; got 'sparse'"),
    (build_tener, {"width": 130}, "TENER.v1: width must be a multiple of heads (4); got 130"),
    (build_tener, {"width": 12}, "TENER.v1: width must be a multiple of 2 * heads"),
    (build_tener, {"width": 15, "heads": 5, "adapted": False}, "TENER.v1: width must be even"),
    (build_tener, {"width": 128.0}, f"TENER.v1: width {INTEGER}; got 128.0"),
    (build_tener, {"layers": True}, f"TENER.v1: layers {INTEGER}; got True"),
    (build_tener, {"adapted": 1}, "TENER.v1: adapted must be a valid boolean; got 1"),
    (build_tener, {"layers": 0, "dropout": 1.0}, f"TENER.v1: layers {POSITIVE}; got 0; dropout {BELOW}; got 1.0"),
    (build_grn, {"width": 0}, f"GRN.v1: width {POSITIVE}; got 0"),
    (build_grn, {"branches": [1, 2]}, "GRN.v1: branches.1 must be odd, so that there is a central position; got 2"),
    (build_grn, {"branches": [-1]}, f"GRN.v1: branches.0 {POSITIVE}; got -1"),
    (build_grn, {"relation": "sum"}, "GRN.v1: relation must be 'gated'; got 'sum'"),
    (build_grn, {"relation": None, "branches": []}, "GRN.v1: relation must be .* if branches is empty"),
    (build_char_embed, {"width": 0}, f"CharEmbed.v1: width {POSITIVE}; got 0"),
    (build_char_embed, {"bigram_width": -1}, f"bigram_width {NOT_NEGATIVE}; got -1"),
    (
        build_char_embed,
        {"bigram_width": 0, "bigram_vectors": "x.vec"},
        "CharEmbed.v1: bigram_width must be above 0 if bigram_vectors is set; got 0",
    ),
    (build_char_embed, {"dropout": 1.0}, f"dropout {BELOW}; got 1.0"),
    (build_char_embed, {"word_dropout": -0.1}, f"word_dropout {NOT_NEGATIVE}; got -0.1"),
    (build_char_embed, {"bigram_dropout": 1.5}, f"bigram_dropout {BELOW}; got 1.5"),
    (build_word_char_embed, {"width": 0}, f"WordCharEmbed.v1: width {POSITIVE}; got 0"),
    (build_word_char_embed, {"project_to": 0}, f"project_to {POSITIVE}; got 0"),
    (build_word_char_embed, {"word_dropout": -0.1}, f"word_dropout {NOT_NEGATIVE}; got -0.1"),
    (build_char_cnn, {"filters": 0}, f"CharCNN.v1: filters {POSITIVE}; got 0"),
    (build_char_cnn, {"window": 2}, "CharCNN.v1: window must be odd, so that there is a central position; got 2"),
    (build_char_cnn, {"char_dropout": 1.0}, f"char_dropout {BELOW}; got 1.0"),
    (
        build_char_transformer,
        {"heads": 4},
        "CharTransformer.v1: char_width must be a multiple of heads (4); got 30",
    ),
    (build_char_transformer, {"inner_dropout": 1.0}, f"CharTransformer.v1: inner_dropout {BELOW}; got 1.0"),
    (build_radical_embed, {"radical_width": 0}, f"RadicalEmbed.v1: radical_width {POSITIVE}; got 0"),
    (build_radical_embed, {"window": 2}, "RadicalEmbed.v1: window must be odd"),
    (build_radical_embed, {"radical_dropout": -0.1}, f"radical_dropout {NOT_NEGATIVE}; got -0.1"),
    (build_segment_embed, {"width": 0}, f"SegmentEmbed.v1: width {POSITIVE}; got 0"),
    (build_lexicon_embed, {"max_words": 0}, f"LexiconEmbed.v1: max_words {POSITIVE}; got 0"),
    (build_lexicon_embed, {"tag_width": -1}, f"LexiconEmbed.v1: tag_width {NOT_NEGATIVE}; got -1"),
    (build_onnx_embed, {"cache": -1}, f"OnnxEmbed.v1: cache {NOT_NEGATIVE}; got -1"),
    (build_transformer_embed, {"layers": 0}, f"TransformerEmbed.v1: layers {POSITIVE}; got 0"),
    (build_transformer_embed, {"pooling": "max"}, "pooling must be 'mean' or 'first'; got 'max'"),
    (build_transformer_embed, {"mixed_precision": "cpu"}, "mixed_precision.* must be 'gpu'; got 'cpu'"),
    (
        build_transformer_embed,
        {"window": 64, "overlap": 30},
        "TransformerEmbed.v1: window must be at least 76 (twice the overlap plus 16 subword tokens); got 64",
    ),
    (build_transformer_embed, {"overlap": -1}, f"overlap {NOT_NEGATIVE}; got -1"),
    (build_transformer_embed, {"cache": -1}, f"cache {NOT_NEGATIVE}; got -1"),
    (onnx_encoder, {"window": 64, "overlap": 30}, "OnnxEncoder.v1: window must be at least 76"),
    (e5, {"layers": [3, 3]}, "E5.v1: layers must not contain duplicates; got [3, 3]"),
    (e5, {"layers": []}, "E5.v1: layers must have at least 1 item"),
    (e5, {"window": 64, "overlap": 30}, "E5.v1: window must be at least 76"),
    (e5, {"precision": "int2"}, "E5.v1: precision must be 'int4', 'int8' or 'float32'; got 'int2'"),
    (build_crf_tagger, {"dropout": 40}, f"CRFTagger.v1: dropout {BELOW}; got 40"),
    (load_teacher, {"weight": 0.0}, f"Teacher.v1: weight {POSITIVE}; got 0.0"),
    (load_teacher, {"temperature": float("inf")}, f"Teacher.v1: temperature {FINITE}; got inf"),
]


@pytest.mark.parametrize(("build", "settings", "message"), INVALID_SETTINGS)
def test_invalid_setting_is_named_in_error(build: Callable[..., Any], settings: dict[str, Any], message: str) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(UserError, match=rf"spacy_tener\..*{pattern}"):
        build(**settings)


def test_invalid_positional_argument_is_named_in_error() -> None:
    with pytest.raises(UserError, match=r"triangular\.v1: max_rate must be"):
        triangular(-1.0, 9)


@pytest.mark.parametrize("config", [GRNConfig, TransformerConfig])
def test_config_class_rejects_invalid_width(config: type) -> None:
    with pytest.raises(ValueError, match=r"(?s)width.*greater than 0"):
        config(width=0)
