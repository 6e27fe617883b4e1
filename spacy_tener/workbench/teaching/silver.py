"""Silver annotation: what teachers are sure of in raw text, as Docs that `spacy train` reads. The doubtful stays open.

Tokens whose annotation is missing are learned as such: `tener_ner`, and spaCy's `ner`, learn what is known around them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import minibatch

from ...errors import RemedyError
from ...files import digest, write_file, write_text
from ...inputs import STDIN, open_file
from ..docbins import read_docs
from ..vectors.raw_text import comes_once
from .beliefs import Belief, beliefs

SETTINGS = "silver.json"
CONTENTS = "contents"
BATCH = 256
_REMEDY = "Remove the directory to make it anew, or choose another one."


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
class Counts:
    """What is in some silver annotation."""

    texts: int = 0
    tokens: int = 0
    entities: int = 0
    missing: int = 0
    """Tokens left open."""

    def add(self, other: Counts) -> None:
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
    """What annotation depends on, as settings for `write_silver`: teachers and texts by their names, and by digests of
    what they hold, which say whether one has changed. What can be read only once has none."""
    weights = {name: digest(teacher.path) for name, teacher in zip(names, teachers, strict=True) if teacher.path}
    raw = {source: _content(source) for source in sources}
    return {"teachers": list(names), "texts": list(sources), CONTENTS: {**weights, **raw}}


def _content(source: str) -> str | None:
    if comes_once(source):
        return None
    with open_file(source):  # which says what is wrong with one that cannot be read
        return digest(Path(source))


def write_silver(
    teachers: Sequence[Language],
    texts: Iterable[str],
    output: Path,
    sure: Sureness,
    *,
    settings: dict[str, object],
    part_size: int,
    done: Callable[[Counts, bool], object],
) -> Counts:
    """Annotate texts into the parts of a directory, which `spacy train` reads as one corpus.

    Parts that are there already are left alone, so that the same call goes on where it was stopped.

    settings: What the annotation depends on, of `made_of` and more. Parts that were made by others are refused.
    done: Called with what is in a part, and whether it had been there.
    """
    settings = {**settings, **asdict(sure), "part_size": part_size}
    if any(output.glob("part-*.spacy")):
        _check_settings(output / SETTINGS, settings)
    total = Counts()
    for number, part in enumerate(minibatch(texts, part_size)):
        path = output / f"part-{number:05}.spacy"
        made = path.exists()
        docs = [] if made else list(silver(teachers, part, sure))
        if not made:
            if not number:  # not before there is a text: a mistyped path would leave settings that refuse the right one
                write_text(output / SETTINGS, json.dumps(settings, indent=1, ensure_ascii=False) + "\n")
            data = DocBin(docs=docs).to_bytes()
            write_file(path, lambda file, data=data: file.write(data))  # type: ignore[misc]
        again = "Remove this file: the same command makes it anew."
        counts = count(read_docs(path, teachers[0].vocab, remedy=again) if made else docs)
        total.add(counts)
        done(counts, made)
    return total


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse parts that were made with other settings or of other texts, and those of which nothing tells that."""
    before = _read_settings(path)
    old, new = before[CONTENTS], settings[CONTENTS]
    pairs = {name: (before.get(name), value) for name, value in settings.items() if name != CONTENTS}
    changed = [f"{name}: {was} -> {value}" for name, (was, value) in pairs.items() if was != value]
    # Other names have other contents, which need not be said.
    changed = changed or [f"{name} has changed" for name, content in new.items() if old.get(name) != content]
    if changed:
        raise RemedyError(f"{path.parent}: was made with other settings ({'; '.join(changed)})", _REMEDY)
    if once := ["standard input" if name == STDIN else name for name, content in new.items() if content is None]:
        reason = f"{path.parent}: has parts already, perhaps of other texts than {', '.join(once)} brings now"
        raise RemedyError(reason, f"{_REMEDY} Texts of a file go on where they were stopped.")


def _read_settings(path: Path) -> dict[str, Any]:
    try:
        before = json.loads(path.read_text(encoding="utf8")) if path.exists() else None
    except ValueError as error:
        raise RemedyError(f"{path}: is damaged ({error})", _REMEDY) from error
    if not isinstance(before, dict) or not isinstance(before.get(CONTENTS), dict):
        raise RemedyError(f"{path}: does not say what the parts beside it were made of", _REMEDY)
    return before


def count(docs: Iterable[Doc]) -> Counts:
    counts = Counts()
    for doc in docs:
        counts.add(Counts(1, len(doc), len(doc.ents), sum(token.ent_iob_ == "" for token in doc)))
    return counts
