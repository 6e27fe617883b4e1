"""Silver annotation: what teachers are sure of in raw text, as Docs that `spacy train` reads. The doubtful stays open.

Tokens whose annotation is missing are learned as such: `tener_ner`, and spaCy's `ner`, learn what is known around them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import minibatch

from ...errors import RemedyError
from ...files import digest
from ...inputs import STDIN, open_file
from ...manifest import Manifest, file_input, stream_input
from ..vectors.raw_text import comes_once
from .beliefs import Belief, beliefs

BATCH = 256
_REMEDY = "Remove the directory to annotate everything anew, or choose another one."


@dataclass(frozen=True)
class Sureness:
    """When an annotation is kept.

    entity: Least probability of an entity.
    outside: Least probability of a token to be in no entity.
    """

    entity: float = 0.9
    outside: float = 0.9

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.5 < value <= 1.0:
                raise RemedyError(f"{name} = {value}", "Give a probability above a half and at most 1.")


@dataclass
class SilverStats:
    """What is in some silver annotation."""

    texts: int = 0
    tokens: int = 0
    entities: int = 0
    missing: int = 0
    """Tokens left open."""

    def add(self, other: SilverStats) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def annotate(belief: Belief, sure: Sureness) -> Doc:
    """Keep what is sure of a text: entities, and tokens outside. All other tokens are missing."""
    doc = belief.doc
    entities: list[Span] = []
    taken = np.zeros(len(doc), dtype=bool)
    # The likeliest first: after a calibration by labels, spans that exclude each other may both be above a half.
    for (start, end, label), probability in sorted(belief.entities.items(), key=lambda each: -each[1]):
        span = doc.char_span(start, end, label=label) if probability >= sure.entity else None
        # Another teacher's entity may not lie on the edges of tokens.
        if span is not None and not taken[span.start : span.end].any():
            entities.append(span)
            taken[span.start : span.end] = True
    starts = np.array([token.idx for token in doc], dtype=np.int64)
    outside = np.minimum.reduceat(belief.outside, starts) if len(doc) else np.empty(0)
    known = taken | (outside >= sure.outside)
    missing: list[Span] = [doc[index : index + 1] for index in np.flatnonzero(~known).tolist()]
    doc.set_ents(entities, missing=missing, default="outside")
    return doc


def silver(teachers: Sequence[Language], texts: Iterable[str], sure: Sureness) -> Iterator[Doc]:
    """Annotate texts, as many at once as are good for speed."""
    for batch in minibatch(texts, BATCH):
        for belief in beliefs(teachers, batch):
            yield annotate(belief, sure)


def made_of(names: Sequence[str], teachers: Sequence[Language], sources: Sequence[str]) -> dict[str, object]:
    """Return the inputs that silver annotation depends on, for `write_silver`: teachers and texts, by contents."""
    weights = [digest(teacher.path) if teacher.path else "" for teacher in teachers]
    return {"teachers": list(map(file_input, names, weights)), "texts": list(map(_as_input, sources))}


def _as_input(source: str) -> dict[str, str | None]:
    if comes_once(source):
        return stream_input("standard input" if source == STDIN else source)
    with open_file(source):  # names what is wrong with a file that cannot be read
        return file_input(source)


def write_silver(
    teachers: Sequence[Language],
    texts: Iterable[str],
    output: Path,
    sure: Sureness,
    *,
    settings: Mapping[str, object],
    part_size: int,
    done: Callable[[SilverStats, bool], object],
) -> SilverStats:
    """Annotate texts into the parts of a directory, which `spacy train` reads as one corpus.

    Finished parts are left alone, so that the same call resumes where it was stopped.

    settings: What the annotation depends on, of `made_of` and more. Parts that were made of something else are refused.
    done: Called with what is in a part, and whether it had been there.
    """
    made_of = {**settings, **asdict(sure), "part_size": part_size}
    manifest = Manifest.resume(output, made_of, remedy=_REMEDY)
    total = SilverStats()
    try:
        for number, part in enumerate(minibatch(texts, part_size)):
            name = f"part-{number:05}.spacy"
            finished = name in manifest.parts
            if not finished:
                docs = list(silver(teachers, part, sure))
                manifest.folder.write(name, DocBin(docs=docs).to_bytes())
                manifest.finish(name, asdict(count(docs)))
            stats = SilverStats(**manifest.parts[name])
            total.add(stats)
            done(stats, finished)
    finally:
        manifest.save()
    return total


def count(docs: Iterable[Doc]) -> SilverStats:
    counts = SilverStats()
    for doc in docs:
        counts.add(SilverStats(1, len(doc), len(doc.ents), sum(token.ent_iob_ == "" for token in doc)))
    return counts
