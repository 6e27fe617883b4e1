"""Two embedders side by side, as one embedder of a config."""

from __future__ import annotations

from ..bridge import EmbedModel
from .char import build_char_embed
from .component import build_component_embed
from .word_char import join_embedders


def build_join_embed(first: EmbedModel | None = None, second: EmbedModel | None = None) -> EmbedModel:
    """Embed each token by two embedders, side by side: ours, spaCy's, a transformer's listener.

    Registered as `spacy_tener.JoinEmbed.v1`. For more than two, join joined ones.

    first (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.CharEmbed.v1` if there is none.
    second (Optional[Model[List[Doc], List[Floats2d]]]): `spacy_tener.ComponentEmbed.v1` if there is none.
    """
    return join_embedders(first or build_char_embed(), second or build_component_embed())
