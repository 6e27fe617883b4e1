"""Parts of spaCy, small, that tests put beside ours or around them."""

from __future__ import annotations

from typing import Any


def spacy_s_ner(tok2vec: dict[str, Any]) -> dict[str, Any]:
    """The model of spaCy's `ner`."""
    return {
        "@architectures": "spacy.TransitionBasedParser.v2",
        "state_type": "ner",
        "extra_state_tokens": False,
        "hidden_width": 16,
        "maxout_pieces": 2,
        "use_upper": True,
        "tok2vec": tok2vec,
    }


def spacy_s_cnn():
    """The config of spaCy's CNN over hashed strings, a tok2vec by itself."""
    return {
        "@architectures": "spacy.HashEmbedCNN.v2",
        "pretrained_vectors": None,
        "width": 16,
        "depth": 1,
        "embed_size": 200,
        "window_size": 1,
        "maxout_pieces": 2,
        "subword_features": False,
    }
