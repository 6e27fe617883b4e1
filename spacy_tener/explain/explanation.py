"""The data of an explanation, written as JSON or as one page (page.html, page.css, page.js)."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from ..pages import make_page
from ..pipeline.crf_pipe import Reading
from ..pipeline.entities import FoundEntity


@dataclass(frozen=True)
class Evidence:
    """A unit of the text that an entity rests on, or that speaks against it.

    start, end: Offsets in characters of the text.
    drop: By how much the entity's log-odds fall where the unit is masked. Below 0, they rise.
    """

    start: int
    end: int
    drop: float


@dataclass(frozen=True)
class ExplainedEntity(FoundEntity):
    """An entity that was found, or that is possible.

    rivals: Other entities in its place, with other edges or another label, likeliest first.
    evidence: The units that it rests on, in the order of the text. Empty where nothing was masked.
    """

    rivals: list[FoundEntity] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)


@dataclass(frozen=True)
class LexiconWord:
    """A word of the lexicon that was found in a text.

    start, end: The units that it covers.
    tag: The lexicon's tag of the word, or nothing: a part of speech in jieba's dictionary.
    known: Whether the model has a row for this word, from training or from a file of vectors, or for words that it is
        like, if it came after training. All others share one.
    """

    start: int
    end: int
    text: str
    tag: str
    known: bool


@dataclass(frozen=True, eq=False)
class HeatMap:
    """Attention or relation strength between the units of a text, and from units to the words of the lexicon.

    kind: `attention`, where each query's row adds up to 1; `words`, the same where the keys are words only
        (FLAT-ATSSA's word fusion); `relations`, the lengths of GRN's r_ij, as the paper's Figure 4 has them.
    layer: Counted from 1.
    stream: The stream of MECT that is read, or nothing.
    weights: *Shape: [heads, units, units + words]*; the keys are units alone for `relations` and for encoders that read
        no words beside them, and words alone for `words`.
    kept: How many keys each query keeps, where it selects (ATSSA). *Shape: [heads, units]*
    """

    kind: Literal["attention", "words", "relations"]
    layer: int
    stream: str
    weights: NDArray[np.float32]
    kept: NDArray[np.int64] | None = None

    def part(self, units: slice, words: NDArray[np.int64]) -> HeatMap:
        """Return the map over some of the units and of the words."""
        n_units = 0 if self.kind == "words" else self.weights.shape[1]
        keys = np.arange(n_units)[units]
        if self.weights.shape[2] > n_units:
            keys = np.concatenate([keys, n_units + words])
        kept = None if self.kept is None else self.kept[:, units]
        return replace(self, weights=self.weights[:, units, :][:, :, keys], kept=kept)


@dataclass(frozen=True)
class Passage:
    """A part of a text that a page has room for, with its words and maps.

    start, end: Offsets in characters of the text.
    units: Start and end of each token or character, as the model reads them.
    words: Words of the lexicon that lie in the passage, by units of the passage.
    maps: The parts of the encoder's maps over the units and words of the passage: a row of `attention` may add up to
        less than 1, where a query looks at what lies outside.
    """

    start: int
    end: int
    units: list[tuple[int, int]]
    words: list[LexiconWord] = field(default_factory=list)
    maps: list[HeatMap] = field(default_factory=list)


@dataclass(frozen=True)
class ExplainedText:
    """One text.

    possible: Entities of other readings than the best, with what they would rest on.
    entropy: Entropy of the distribution over all readings, in nats.
    gold: Start, end and label of the annotated entities, where the text is annotated.
    radicals: The radicals of its characters, where the model reads them.
    """

    text: str
    entities: list[ExplainedEntity]
    possible: list[ExplainedEntity]
    k_best: list[Reading]
    passages: list[Passage]
    entropy: float = 0.0
    gold: list[tuple[int, int, str]] | None = None
    radicals: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """Some texts, explained by one pipeline. All offsets are in characters of a text.

    pipeline: Its language, name and version, the component's name, and the view that it has of a text.
    labels: The entity types that it can find.
    notes: Notes on the mask, and on parts of an explanation that the pipeline lacks.
    """

    pipeline: dict[str, str]
    labels: list[str]
    notes: list[str]
    texts: list[ExplainedText]

    def to_dict(self) -> dict[str, Any]:
        """Return the data as lists, strings and numbers, rounded to six digits."""
        return cast("dict[str, Any]", _plain(self, {HeatMap: _map_as_numbers}))

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), ensure_ascii=False) + "\n"

    def to_html(self, *, title: str = "Explained entities", links: Sequence[str] = ()) -> str:
        """Return one page that needs neither network nor server.

        links: For each text the address to link back to.
        """
        data = {**_plain(self, {HeatMap: _map_as_bytes, Evidence: _evidence_as_list}), "links": list(links)}
        own = self.pipeline
        name = " ".join(filter(None, (own["name"], own["version"])))
        about = " · ".join(filter(None, (name, own["component"], f"reads {own['view']}")))
        return make_page(__package__, "page", data, title=title, about=about, lang=own["lang"] or "en")


def _plain(value: Any, writers: Mapping[type, Callable[[Any], Any]]) -> Any:
    """Return a value as JSON types. writers: Functions for types that are not converted field by field."""
    if (write := writers.get(type(value))) is not None:
        return write(value)
    if is_dataclass(value):
        return {part.name: _plain(getattr(value, part.name), writers) for part in fields(value)}
    if isinstance(value, list | tuple):
        return [_plain(part, writers) for part in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _map_as_numbers(found: HeatMap) -> dict[str, Any]:
    return _map(found, weights=np.round(found.weights.astype(np.float64), 4).tolist())


def _map_as_bytes(found: HeatMap) -> dict[str, Any]:
    """Pack weights as bytes: 0 for 0, 1 to 255 for what lies between that and the largest."""
    largest = float(found.weights.max(initial=0.0))
    scaled = np.ceil(found.weights / (largest or 1.0) * 255).astype(np.uint8)
    weights = base64.b64encode(scaled.tobytes()).decode("ascii")
    return _map(found, shape=list(found.weights.shape), largest=round(largest, 6), weights=weights)


def _map(found: HeatMap, **weights: Any) -> dict[str, Any]:
    kept = None if found.kept is None else found.kept.tolist()
    return {"kind": found.kind, "layer": found.layer, "stream": found.stream, **weights, "kept": kept}


def _evidence_as_list(evidence: Evidence) -> list[float]:
    """Leave out the field names, since the page of a long text has very many of these."""
    return [evidence.start, evidence.end, round(evidence.drop, 3)]
