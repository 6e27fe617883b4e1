"""Small configs of spaCy's own models, to compare or combine them with ours."""

from __future__ import annotations

from typing import Any


def spacy_s_ner(tok2vec: dict[str, Any]) -> dict[str, Any]:
    """Return the model config of spaCy's `ner`."""
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
    """Return the config of spaCy's HashEmbedCNN."""
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
