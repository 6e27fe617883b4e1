"""What a trained embedder of components makes of characters, and what it made of them before training."""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from spacy.vocab import Vocab
from thinc.api import Model, fix_random_seed

from ...features.components.components import decompose
from ...models.bridge import torch_shim
from ...models.embed.char import EmbedModel
from ...models.embed.component import COMPONENT, ComponentVocabulary


@dataclass(frozen=True)
class ComponentEmbedder:
    """The embedder of components in a pipeline.

    pipe: the name of the pipeline's component that it is in.
    """

    pipe: str
    model: EmbedModel

    @property
    def vocabulary(self) -> ComponentVocabulary:
        found: ComponentVocabulary = self.model.attrs["vocabulary"]
        return found

    def components(self, characters: Iterable[str]) -> list[str]:
        """What is read of each character."""
        return [self.vocabulary.structures[character] for character in characters]

    def known(self, characters: Iterable[str]) -> list[str]:
        """The characters all of whose components training has shown."""
        rows = {chr(key) for key in self.vocabulary.tables[COMPONENT].keys.tolist()}
        return [character for character in characters if rows.issuperset(self.vocabulary.structures[character])]

    def vectors(self, characters: Sequence[str]) -> NDArray[np.float32]:
        """*Shape* [n, width]"""
        (rows,) = self.model.predict([Doc(Vocab(), words=list(characters))])
        vectors: NDArray[np.float32] = self.model.ops.to_numpy(rows)
        return vectors

    def untrained(self, seed: int) -> ComponentEmbedder:
        """The same with fresh weights. They are not bit for bit those that its training began with, which depended on
        all that was made before them."""
        fresh = copy.deepcopy(self.model)
        fix_random_seed(seed)
        torch_shim(fresh).build(**torch_shim(fresh).sizes)
        return ComponentEmbedder(self.pipe, fresh)


def component_embedders(nlp: Language) -> list[ComponentEmbedder]:
    """All embedders of components in a pipeline, inside whatever architecture."""
    models: list[tuple[str, Model[Any, Any] | None]] = [
        (name, getattr(pipe, "model", None)) for name, pipe in nlp.pipeline
    ]
    return [
        ComponentEmbedder(name, node)
        for name, model in models
        for node in (model.walk() if isinstance(model, Model) else ())
        if isinstance(node.attrs.get("vocabulary"), ComponentVocabulary)
    ]


def radicals(components: Sequence[str], characters: Sequence[str]) -> list[str]:
    """The radical of each character, looked for among its components."""
    found = decompose(dict(zip(characters, components, strict=True)), kind="radical", depth=1)
    return [found[character][0] for character in characters]


def chinese_characters(strings: Iterable[str]) -> list[str]:
    """The Chinese characters in some strings, each once, in order."""
    return [char for char in sorted(set().union(*strings)) if unicodedata.name(char, "").startswith("CJK UNIFIED")]
