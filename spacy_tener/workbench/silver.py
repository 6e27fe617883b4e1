"""Silver annotation: entities that teachers are sure of in raw text, as Docs that `spacy train` reads.

Tokens that the teachers are not sure of have missing annotation, from which `tener_ner` and spaCy's `ner` learn nothing
but what is known around them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import minibatch

from ..errors import RemedyError
from ..files import digest
from ..inputs import STDIN, is_remote, open_file, size_and_version
from ..manifest import Manifest, file_input, stream_input
from ..pipeline.entities import FoundEntity, Place, place_of
from ..pipeline.finding import entity_finders, known_labels, recognisers
from .annotation_tasks import TOOLS, Task
from .vectors.raw_text import comes_once, make_docs

FloatArray = NDArray[np.float64]
SPACY = "spacy"
SILVER_FORMATS = (SPACY, *TOOLS)
LEAST = 0.05
"""Entities of a lower probability count as not found."""

BATCH = 256
_REMEDY = "Remove the directory to annotate everything anew, or choose another one."


@dataclass(frozen=True)
class Belief:
    """The probabilities that teachers give the entities of a text.

    entities: The probability of each entity.
    outside: The probability of each character to be in no entity. *Shape* [n_characters]
    """

    doc: Doc
    entities: dict[Place, float]
    outside: FloatArray


def beliefs(teachers: Sequence[Language], texts: Sequence[str]) -> Iterator[Belief]:
    """Let teachers vote on a batch of texts: yield the means of their probabilities, on the first teacher's Docs."""
    for votes in zip(*(_vote(teacher, texts) for teacher in teachers), strict=True):
        entities: dict[Place, float] = defaultdict(float)
        for vote in votes:
            for place, probability in vote.entities.items():
                entities[place] += probability / len(votes)
        yield Belief(votes[0].doc, dict(entities), np.mean([vote.outside for vote in votes], axis=0))


def unknown_labels(teachers: Mapping[str, Language]) -> dict[str, list[str]]:
    """Return the labels that a teacher lacks and others have, by its name: it votes against all entities of these.

    Teachers with a component that finds entities and does not list its labels are left out.
    """
    known = {name: labels for name, teacher in teachers.items() if (labels := known_labels(teacher)) is not None}
    every = set().union(*known.values())
    return {name: sorted(every - labels) for name, labels in known.items() if every - labels}


def check_teachers(teachers: Mapping[str, Language]) -> None:
    """Refuse teachers that would find nothing anywhere."""
    for name, teacher in teachers.items():
        if known_labels(teacher) == set():
            raise RemedyError(f"{name}: no component has a label of entities", "Name a trained pipeline.")


def _vote(teacher: Language, texts: Sequence[str]) -> list[Belief]:
    found = recognisers(teacher)
    if not found:
        return [_certain(doc) for doc in teacher.pipe(make_docs(teacher, texts))]
    name, pipe = found.popitem()
    at = teacher.pipe_names.index(name)
    with teacher.select_pipes(disable=teacher.pipe_names[at:]):
        docs = list(teacher.pipe(make_docs(teacher, texts)))
    believed = [
        Belief(doc, {(e.start, e.end, e.label): e.probability or 0.0 for e in each.entities}, each.outside)
        for doc, each in zip(docs, pipe.marginals(docs, LEAST), strict=True)
    ]
    if len(entity_finders(teacher)) > 1 or teacher.pipe_names[at + 1 :]:
        for belief in believed:
            _correct(belief, [component for _, component in teacher.pipeline[at:]])
    return believed


def _correct(belief: Belief, components: Sequence[Callable[[Doc], Doc]]) -> None:
    """Correct probabilities, which are those of the first of these components, by what the others do: entities from
    before it and from behind it are certain, and those that are removed behind it are not found."""
    doc = belief.doc
    before = _places(doc)
    found = _places(components[0](doc))
    for component in components[1:]:
        doc = component(doc)
    final = _places(doc)
    for place in found - final:
        belief.entities.pop(place, None)
    for start, end, label in (before & final) | (final - found):
        belief.entities[start, end, label] = 1.0
        belief.outside[start:end] = 0.0


def _places(doc: Doc) -> set[Place]:
    return set(map(place_of, doc.ents))


def _certain(doc: Doc) -> Belief:
    """Return the probability 1 for all that a pipeline without probabilities finds: spaCy's `ner`, rules, an LLM."""
    outside = np.ones(len(doc.text))
    for ent in doc.ents:
        outside[ent.start_char : ent.end_char] = 0.0
    return Belief(doc, dict.fromkeys(map(place_of, doc.ents), 1.0), outside)


@dataclass(frozen=True)
class Sureness:
    """The probabilities from which annotation is kept.

    By default what is more likely than not: where entities need more, most of what is kept is tokens in none, and a
    student learns to find nothing.

    entity: That of an entity.
    outside: That of a token to be in no entity.
    """

    entity: float = 0.51
    outside: float = 0.51

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not 0.5 < value <= 1.0:  # a half is what each of two teachers has who contradict each other
                raise RemedyError(f"{name} = {value}", "Give a probability above 0.5 and at most 1.")


@dataclass
class SilverStats:
    """Numbers of texts, tokens and entities in silver annotation.

    missing: Tokens with missing annotation.
    expected: The entities that the teachers expect in these texts: the sum of all entities' probabilities.
    """

    texts: int = 0
    tokens: int = 0
    entities: int = 0
    missing: int = 0
    expected: float = 0.0

    @property
    def is_starved(self) -> bool:
        """Tell whether less than half of the expected entities are kept, beside the tokens in none."""
        return 2 * self.entities + 1 < self.expected

    def add(self, other: SilverStats) -> None:
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


def keep_sure(belief: Belief, sure: Sureness) -> Doc:
    """Annotate a text with what is sure: entities, and tokens outside. All other tokens have missing annotation."""
    doc = belief.doc
    entities: list[Span] = []
    taken = np.zeros(len(doc), dtype=bool)
    # The likeliest first: of spans that share tokens, one is kept.
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


def silver(teachers: Sequence[Language], texts: Iterable[str], sure: Sureness) -> tuple[list[Task], SilverStats]:
    """Annotate texts: Docs with what is sure, and the probabilities of their entities."""
    tasks, stats = [], SilverStats()
    for batch in minibatch(texts, BATCH):
        for belief in beliefs(teachers, batch):
            doc = keep_sure(belief, sure)
            places = map(place_of, doc.ents)
            tasks.append(Task(doc, [FoundEntity(*place, belief.entities.get(place)) for place in places]))
            missing = sum(not token.ent_iob_ for token in doc)
            stats.add(SilverStats(1, len(doc), len(doc.ents), missing, sum(belief.entities.values())))
    return tasks, stats


def as_docbin(tasks: Sequence[Task]) -> bytes:
    """Return annotated texts as a `.spacy` file."""
    return DocBin(docs=[task.doc for task in tasks]).to_bytes()


def made_of(names: Sequence[str], teachers: Sequence[Language], sources: Sequence[str]) -> dict[str, object]:
    """Return the inputs that silver annotation depends on, for `write_silver`: teachers and texts, by contents."""
    weights = [digest(teacher.path) if teacher.path else "" for teacher in teachers]
    return {"teachers": list(map(file_input, names, weights)), "texts": list(map(_as_input, sources))}


def _as_input(source: str) -> dict[str, str | None]:
    if comes_once(source):
        return stream_input("standard input" if source == STDIN else source)
    with open_file(source):  # names what is wrong with a file that cannot be read
        return file_input(source, str(size_and_version(source)) if is_remote(source) else None)


def write_silver(
    teachers: Sequence[Language],
    texts: Iterable[str],
    output: Path,
    sure: Sureness,
    *,
    format: str = SPACY,
    settings: Mapping[str, object],
    part_size: int,
    done: Callable[[SilverStats, bool], object],
) -> SilverStats:
    """Annotate texts into the parts of a directory, which `spacy train` reads as one corpus.

    Finished parts are left alone, so that the same call resumes where it was stopped.

    format: One of `SILVER_FORMATS`: that of the parts.
    settings: What the annotation depends on, of `made_of` and more. Parts that were made of something else are refused.
    done: Called with what is in a part, and whether it had been there.
    """
    made_of = {**settings, **asdict(sure), "format": format, "part_size": part_size}
    manifest = Manifest.resume(output, made_of, remedy=_REMEDY)
    total = SilverStats()
    try:
        for number, part in enumerate(minibatch(texts, part_size)):
            name = f"part-{number:05}{TOOLS[format].suffix if format in TOOLS else '.spacy'}"
            finished = name in manifest.parts
            if not finished:
                tasks, stats = silver(teachers, part, sure)
                written = TOOLS[format].write(tasks).encode() if format in TOOLS else as_docbin(tasks)
                manifest.folder.write(name, written)
                manifest.finish(name, asdict(stats))
            stats = SilverStats(**manifest.parts[name])
            total.add(stats)
            done(stats, finished)
    finally:
        manifest.save()
    return total
