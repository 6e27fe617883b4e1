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
