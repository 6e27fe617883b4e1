"""Create silver-standard data: annotate raw text with trained pipelines, to train another pipeline.

The trained pipelines are called teachers. If there are several teachers, their probabilities are averaged. Entities are
annotated if their probability reaches a threshold. Tokens are annotated as O if their probability to be outside
entities reaches a threshold. All other tokens have missing annotation, which `tener_ner` and spaCy's `ner` support in
training.

Used by the command `silver`.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path

import numpy as np
from spacy.language import Language
from spacy.tokens import Doc, DocBin, Span
from spacy.util import minibatch
from tqdm import tqdm  # type: ignore[import-untyped,unused-ignore]

from ..annotate.answers import ID_COLUMN, TEXT_COLUMN, Record
from ..annotate.encoding import packable
from ..errors import UserError
from ..files import digest, write_bytes
from ..inputs import STDIN, open_file
from ..manifest import Manifest, file_input, stream_input
from ..pipeline.batch_decoding import Probabilities
from ..pipeline.entities import offsets_of, read_entities
from ..pipeline.finding import crf_pipes, known_labels, overlap_groups
from ..types import EntityOffsets

# Entities below this probability are not computed, to save time and memory.
MIN_PROBABILITY = 0.05
# Default threshold. It is slightly above 0.5, so that two teachers must agree, see `SilverThresholds.__post_init__`.
DEFAULT_THRESHOLD = 0.51

BATCH = 256
_SPANS_KEY = "tener_earlier"
_RESUME_FIX = "Delete the directory to annotate everything again, or choose another one."


@dataclass(frozen=True)
class TextProbabilities:
    """The entity probabilities in a text.

    doc (Doc): The text, tokenized by the first teacher.
    entities (dict[EntityOffsets, float]): Probability of each entity.
    outside (Probabilities): Probability of each character to be outside entities. *Shape:* (characters,)
    """

    doc: Doc
    entities: dict[EntityOffsets, float]
    outside: Probabilities


def average_probabilities(teachers: Sequence[Language], texts: Sequence[str]) -> Iterator[TextProbabilities]:
    """Predict texts with all teachers, and yield the mean probabilities for each text."""
    for predictions in zip(*(_predict_probabilities(teacher, texts) for teacher in teachers), strict=True):
        entities: dict[EntityOffsets, float] = defaultdict(float)
        for prediction in predictions:
            for entity, probability in prediction.entities.items():
                entities[entity] += probability / len(predictions)
        yield TextProbabilities(
            predictions[0].doc, dict(entities), np.mean([prediction.outside for prediction in predictions], axis=0)
        )


def unknown_labels(teachers: Mapping[str, Language]) -> dict[str, list[str]]:
    """Return the labels that a teacher doesn't have but other teachers have.

    These labels lower the averaged probabilities, because the teacher assigns them the probability 0. Teachers whose
    labels can't be determined are ignored, for example if a component uses rules.

    teachers (Mapping[str, Language]): Teachers by name.
    RETURNS (dict[str, list[str]]): Missing labels by teacher name. Teachers with all labels are not included.
    """
    listed = {name: labels for name, teacher in teachers.items() if (labels := known_labels(teacher)) is not None}
    union = set().union(*listed.values())
    return {name: sorted(union - labels) for name, labels in listed.items() if union - labels}


def check_teachers(teachers: Mapping[str, Language]) -> None:
    """Check that each teacher can annotate silver-standard data.

    Raises a UserError if a teacher has no entity labels or predicts nested entities.

    teachers (Mapping[str, Language]): Teachers by name.
    """
    for name, teacher in teachers.items():
        overlapping = overlap_groups(teacher)
        if overlapping:
            reason = f"{name}: the entities that are predicted by {', '.join(overlapping)} may be nested"
            fix = "Use the overlay `distilled`, or a pipeline without nested entities."
            raise UserError(f"{reason}, which is not supported in silver-standard data", fix)
        if known_labels(teacher) == set():
            raise UserError(f"{name}: no component has entity labels", "Use a trained pipeline.")


def _predict_probabilities(teacher: Language, texts: Sequence[str]) -> list[TextProbabilities]:
    """Predict texts with a single teacher, and return the probabilities.

    The probabilities are marginals from the last `tener_ner` in the pipeline. If the teacher has other components that
    set entities, their results take precedence over the marginals, see `_correct`. A teacher without a `tener_ner` only
    returns the probabilities 0 and 1.
    """
    pipes = crf_pipes(teacher)
    if not pipes:
        return [_with_probability_1(doc) for doc in teacher.pipe(map(teacher.tokenizer, texts))]
    last_name, last_pipe = pipes.popitem()
    index = teacher.pipe_names.index(last_name)
    with teacher.select_pipes(disable=teacher.pipe_names[index:]):
        write_probabilities = {name: {"spans_key": _SPANS_KEY} for name in pipes}
        docs = list(teacher.pipe(map(teacher.tokenizer, texts), component_cfg=write_probabilities))
    decodings, before = list(last_pipe.decode(docs)), list(map(_entities, docs))
    predictions = []
    for decoding in decodings:
        marginals = decoding.marginals(MIN_PROBABILITY)
        entities = {(e.start, e.end, e.label): e.probability or 0.0 for e in marginals.entities}
        predictions.append(TextProbabilities(decoding.doc, entities, marginals.outside))
    last_pipe.annotate(decodings)
    later = [component for _, component in teacher.pipeline[index + 1 :]]
    for prediction, earlier in zip(predictions, before, strict=True):
        if earlier or later:
            _correct(prediction, earlier, later)
    return predictions


def _correct(predicted: TextProbabilities, earlier: set[EntityOffsets], later: Sequence[Callable[[Doc], Doc]]) -> None:
    """Update the marginals of a `tener_ner` to match the entities that other components set.

    Entities from other components get the probability 1, or the probability that an earlier `tener_ner` computed.
    Entities that a later component removes from the Doc are deleted.

    predicted (TextProbabilities): Marginals from the `tener_ner`. Modified in place.
    earlier (set[EntityOffsets]): Entities from components before the `tener_ner`.
    later (Sequence[Callable[[Doc], Doc]]): Components after the `tener_ner`.
    """
    doc = predicted.doc
    probabilities = {entity.offsets: entity.probability for entity in read_entities(doc)}
    found = _entities(doc)
    for component in later:
        doc = component(doc)
    final = _entities(doc)
    for entity in found - final:
        predicted.entities.pop(entity, None)
    for entity in (earlier & final) | (final - found):
        probability = probabilities.get(entity)
        predicted.entities[entity] = 1.0 if probability is None else probability
        start, end, _ = entity
        predicted.outside[start:end] = 0.0


def _entities(doc: Doc) -> set[EntityOffsets]:
    """Return the offsets and label of each entity in a Doc."""
    return {entity.offsets for entity in read_entities(doc)}


def _with_probability_1(doc: Doc) -> TextProbabilities:
    """Assign the probability 1 to all entities in a Doc.

    Used for pipelines that don't compute probabilities, such as spaCy's `ner`, rules or an LLM.
    """
    outside = np.ones(len(doc.text))
    for ent in doc.ents:
        outside[ent.start_char : ent.end_char] = 0.0
    return TextProbabilities(doc, dict.fromkeys(map(offsets_of, doc.ents), 1.0), outside)


@dataclass(frozen=True)
class SilverThresholds:
    """Minimum probabilities for silver-standard annotation.

    Use similar thresholds for entities and for tokens outside entities. If only the threshold for entities is high,
    most entities are discarded, and nearly all annotated tokens are O. A pipeline that is trained on this data would
    predict too few entities.

    entity (float): Minimum probability of an entity.
    outside (float): Minimum probability of a token to be outside entities.
    """

    entity: float = DEFAULT_THRESHOLD
    outside: float = DEFAULT_THRESHOLD

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            # The threshold must exclude 0.5: if only one of two teachers is certain of an entity, the mean probability
            # is 0.5.
            if not 0.5 < value <= 1.0:
                raise UserError(f"{name} = {value}", "Use a probability above 0.5 and at most 1.")


@dataclass
class SilverStats:
    """Statistics of silver-standard data.

    texts (int): Number of texts.
    tokens (int): Number of tokens.
    entities (int): Number of annotated entities.
    missing (int): Number of tokens with missing annotation.
    expected (float): Expected number of entities, which is the sum of their probabilities before thresholds are
        applied.
    """

    texts: int = 0
    tokens: int = 0
    entities: int = 0
    missing: int = 0
    expected: float = 0.0

    @property
    def has_few_entities(self) -> bool:
        """Return whether fewer than half of the expected entities were annotated."""
        return 2 * self.entities + 1 < self.expected

    def add(self, stats: SilverStats) -> None:
        """Add the statistics of other texts."""
        for name, value in asdict(stats).items():
            setattr(self, name, getattr(self, name) + value)


def keep_probable(predicted: TextProbabilities, thresholds: SilverThresholds) -> Doc:
    """Annotate a Doc with the entities and O tokens whose probabilities are above the thresholds.

    All other tokens get missing annotation.

    predicted (TextProbabilities): The Doc and the probabilities. The Doc is modified in place.
    thresholds (SilverThresholds): The thresholds.
    RETURNS (Doc): The Doc.
    """
    doc = predicted.doc
    entities: list[Span] = []
    is_in_entity = np.zeros(len(doc), dtype=bool)
    # Add entities by descending probability. Overlapping entities with a lower probability are skipped.
    kb_ids = {offsets_of(ent): ent.kb_id_ for ent in doc.ents}
    for entity, probability in sorted(predicted.entities.items(), key=itemgetter(1), reverse=True):
        span = doc.char_span(*entity, kb_id=kb_ids.get(entity, "")) if probability >= thresholds.entity else None
        # `char_span` returns None if an entity from another teacher is not aligned with the first teacher's tokens.
        if span is not None and not is_in_entity[span.start : span.end].any():
            entities.append(span)
            is_in_entity[span.start : span.end] = True
    starts = np.array([token.idx for token in doc], dtype=np.int64)
    # A token is outside entities if all its characters are outside. The minimum over the characters is an upper bound
    # for this probability.
    outside = np.minimum.reduceat(predicted.outside, starts) if len(doc) else np.empty(0)
    is_annotated = is_in_entity | (outside >= thresholds.outside)
    missing: list[Span] = [doc[index : index + 1] for index in np.flatnonzero(~is_annotated).tolist()]
    doc.set_ents(entities, missing=missing, default="outside")
    # Remove the teacher's span groups, since they may contain entities below the threshold.
    doc.spans.clear()
    return doc


def silver(
    teachers: Sequence[Language], records: Iterable[Record], thresholds: SilverThresholds
) -> tuple[list[Doc], SilverStats]:
    """Annotate records, and return the Docs and their statistics. A record's `id` is stored in `doc.user_data`."""
    docs, stats = list[Doc](), SilverStats()
    for batch in minibatch(records, BATCH):
        texts = [record[TEXT_COLUMN] for record in batch]
        for record, predicted in zip(batch, average_probabilities(teachers, texts), strict=True):
            doc = keep_probable(predicted, thresholds)
            record_id = record.get(ID_COLUMN)
            if record_id is not None:
                doc.user_data[ID_COLUMN] = packable(record_id)
            docs.append(doc)
            missing = sum(not token.ent_iob_ for token in doc)
            stats.add(SilverStats(1, len(doc), len(doc.ents), missing, sum(predicted.entities.values())))
    return docs, stats


def manifest_inputs(names: Sequence[str], teachers: Sequence[Language], sources: Sequence[str]) -> dict[str, object]:
    """Return manifest entries for teachers and input files, with digests of their contents.

    names (Sequence[str]): The teachers' names or paths.
    teachers (Sequence[Language]): The teachers.
    sources (Sequence[str]): Paths to the input files.
    """
    weights = [digest(teacher.path) if teacher.path else "" for teacher in teachers]
    return {"teachers": list(map(file_input, names, weights)), "texts": list(map(_as_input, sources))}


def _as_input(source: str) -> dict[str, str | None]:
    """Return the manifest entry for an input file, or for a stream such as standard input or a named pipe."""
    # A stream can be read only once, so it can't be digested.
    if source == STDIN or (os.path.exists(source) and not os.path.isfile(source)):
        return stream_input("standard input" if source == STDIN else source)
    # Check that the file can be read. Otherwise, an error with the path is raised.
    with open_file(source):
        return file_input(source)


def write_silver(
    teachers: Sequence[Language],
    records: Iterable[Record],
    output: Path,
    thresholds: SilverThresholds,
    *,
    settings: Mapping[str, object],
    part_size: int,
) -> SilverStats:
    """Annotate records, and write them as several `.spacy` files to a directory. `spacy train` can read the directory
    as a corpus.

    If the call is interrupted, repeat it with the same arguments to resume. Files that were already written are
    skipped. Raises a UserError if the directory contains data with other settings.

    settings (Mapping[str, object]): Additional inputs and settings to record in the manifest, such as
        `manifest_inputs`.
    part_size (int): Maximum number of texts in a file.
    RETURNS (SilverStats): Statistics for all files.
    """
    made_of = {**settings, **asdict(thresholds), "part_size": part_size}
    manifest = Manifest.resume(output, made_of, fix=_RESUME_FIX)
    total = SilverStats()
    try:
        texts = tqdm(records, unit=" texts", leave=False, disable=None)
        for number, part in enumerate(minibatch(texts, part_size)):
            name = f"part-{number:05}.spacy"
            if name not in manifest.parts:
                docs, stats = silver(teachers, part, thresholds)
                write_bytes(output / name, DocBin(docs=docs, store_user_data=True).to_bytes())
                manifest.finish(name, asdict(stats))
            total.add(SilverStats(**manifest.parts[name]))
    finally:
        manifest.save()
    return total
