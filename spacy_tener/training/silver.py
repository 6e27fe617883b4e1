"""Annotate raw text with trained pipelines (silver-standard data), as training data for `spacy train`.

Several pipelines (teachers) can annotate a text; their probabilities are averaged. Entities, and tokens outside of
entities, are kept if they are probable enough. All other tokens get missing annotation, which `tener_ner` and spaCy's
`ner` support. The command `silver` uses this module.
"""

from __future__ import annotations

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
from ..errors import RemedyError
from ..files import digest, write_bytes
from ..inputs import STDIN, open_file
from ..manifest import Manifest, file_input, stream_input
from ..pipeline.batch_decoding import Probabilities
from ..pipeline.entities import offsets_of, read_entities
from ..pipeline.finding import crf_pipes, known_labels, overlap_groups
from ..types import EntityOffsets

# Entities with a lower probability are ignored.
MIN_PROBABILITY = 0.05
# Default minimum probability of annotation that is kept.
DEFAULT_THRESHOLD = 0.51

BATCH = 256
_SPANS_KEY = "tener_earlier"
_RESUME_REMEDY = "Delete the directory to annotate everything again, or choose another one."


@dataclass(frozen=True)
class TextProbabilities:
    """The probabilities of entities in a text, predicted by one teacher or averaged over several.

    doc (Doc): The text, tokenized by the first teacher.
    entities (dict[EntityOffsets, float]): Probability of each entity.
    outside (Probabilities): Probability of each character to be outside of all entities. *Shape:* (characters,)
    """

    doc: Doc
    entities: dict[EntityOffsets, float]
    outside: Probabilities


def average_probabilities(teachers: Sequence[Language], texts: Sequence[str]) -> Iterator[TextProbabilities]:
    """Yield the mean of all teachers' probabilities for each text."""
    for predictions in zip(*(_predict_probabilities(teacher, texts) for teacher in teachers), strict=True):
        entities: dict[EntityOffsets, float] = defaultdict(float)
        for prediction in predictions:
            for entity, probability in prediction.entities.items():
                entities[entity] += probability / len(predictions)
        yield TextProbabilities(
            predictions[0].doc, dict(entities), np.mean([prediction.outside for prediction in predictions], axis=0)
        )


def unknown_labels(teachers: Mapping[str, Language]) -> dict[str, list[str]]:
    """Return the labels that a teacher doesn't have but another teacher has, by the name of the teacher.

    Entities with these labels have the probability 0 for this teacher, which lowers the mean. Teachers with a component
    whose labels are not known, such as one with rules, are left out.
    """
    listed = {name: labels for name, teacher in teachers.items() if (labels := known_labels(teacher)) is not None}
    union = set().union(*listed.values())
    return {name: sorted(union - labels) for name, labels in listed.items() if union - labels}


def check_teachers(teachers: Mapping[str, Language]) -> None:
    """Raise a RemedyError if a teacher has no entity labels or predicts nested entities."""
    for name, teacher in teachers.items():
        overlapping = overlap_groups(teacher)
        if overlapping:
            remedy = "Silver-standard data has no nested entities. Use the overlay `distilled`, or another pipeline."
            raise RemedyError(f"{name}: the entities of {', '.join(overlapping)} may be nested", remedy)
        if known_labels(teacher) == set():
            raise RemedyError(f"{name}: no component has entity labels", "Use a trained pipeline.")


def _predict_probabilities(teacher: Language, texts: Sequence[str]) -> list[TextProbabilities]:
    """Return the probabilities that one teacher predicts.

    Probabilities come from the last `tener_ner` of the pipeline. They are corrected by the entities of the components
    before and after it.
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
    """Update the probabilities of a `tener_ner` with the entities of other components. Changes `predicted` in place.

    Entities of other components get the probability 1, or the probability from an earlier `tener_ner`. Entities that
    later components remove are removed.

    predicted (TextProbabilities): Probabilities predicted by the `tener_ner`.
    earlier (set[EntityOffsets]): Entities set by earlier components.
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
    """Return the offsets and labels of the entities of a Doc."""
    return {entity.offsets for entity in read_entities(doc)}


def _with_probability_1(doc: Doc) -> TextProbabilities:
    """Return the entities of a pipeline that predicts no probabilities, such as spaCy's `ner`, rules or an LLM, with
    the probability 1.
    """
    outside = np.ones(len(doc.text))
    for ent in doc.ents:
        outside[ent.start_char : ent.end_char] = 0.0
    return TextProbabilities(doc, dict.fromkeys(map(offsets_of, doc.ents), 1.0), outside)


@dataclass(frozen=True)
class SilverThresholds:
    """The minimum probabilities of annotation that is kept.

    By default, annotation is kept if it is more probable than not. With a higher minimum for entities only, nearly all
    kept annotation is outside of entities, so a student learns to predict no entities.

    entity (float): Minimum probability of an entity.
    outside (float): Minimum probability of a token to be outside of all entities.
    """

    entity: float = DEFAULT_THRESHOLD
    outside: float = DEFAULT_THRESHOLD

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            # If only one of two teachers predicts an entity, the mean is 0.5, which must not count as agreement.
            if not 0.5 < value <= 1.0:
                raise RemedyError(f"{name} = {value}", "Use a probability above 0.5 and at most 1.")


@dataclass
class SilverStats:
    """Numbers of texts, tokens and entities in silver-standard data.

    texts (int): Number of texts.
    tokens (int): Number of tokens.
    entities (int): Number of entities that were kept.
    missing (int): Number of tokens with missing annotation.
    expected (float): Expected number of entities: the sum of all their probabilities.
    """

    texts: int = 0
    tokens: int = 0
    entities: int = 0
    missing: int = 0
    expected: float = 0.0

    @property
    def has_few_entities(self) -> bool:
        """Return whether less than half of the expected entities were kept."""
        return 2 * self.entities + 1 < self.expected

    def add(self, stats: SilverStats) -> None:
        """Add the numbers of another part."""
        for name, value in asdict(stats).items():
            setattr(self, name, getattr(self, name) + value)


def keep_probable(predicted: TextProbabilities, sure: SilverThresholds) -> Doc:
    """Set the annotation of a Doc to the entities and outside tokens that are probable enough.

    All other tokens get missing annotation.
    """
    doc = predicted.doc
    entities: list[Span] = []
    is_in_entity = np.zeros(len(doc), dtype=bool)
    # Of overlapping entities, the most probable one is kept.
    kb_ids = {offsets_of(ent): ent.kb_id_ for ent in doc.ents}
    for entity, probability in sorted(predicted.entities.items(), key=itemgetter(1), reverse=True):
        span = doc.char_span(*entity, kb_id=kb_ids.get(entity, "")) if probability >= sure.entity else None
        # Teachers may tokenize differently. `char_span` returns None if the boundaries are not token boundaries.
        if span is not None and not is_in_entity[span.start : span.end].any():
            entities.append(span)
            is_in_entity[span.start : span.end] = True
    starts = np.array([token.idx for token in doc], dtype=np.int64)
    outside = np.minimum.reduceat(predicted.outside, starts) if len(doc) else np.empty(0)
    is_annotated = is_in_entity | (outside >= sure.outside)
    missing: list[Span] = [doc[index : index + 1] for index in np.flatnonzero(~is_annotated).tolist()]
    doc.set_ents(entities, missing=missing, default="outside")
    doc.spans.clear()  # The teacher's own span groups may contain entities that were not kept.
    return doc


def silver(
    teachers: Sequence[Language], records: Iterable[Record], sure: SilverThresholds
) -> tuple[list[Doc], SilverStats]:
    """Annotate records and return them as Docs, with counts. `doc.user_data` contains the id of a record."""
    docs, stats = list[Doc](), SilverStats()
    for batch in minibatch(records, BATCH):
        texts = [record[TEXT_COLUMN] for record in batch]
        for record, predicted in zip(batch, average_probabilities(teachers, texts), strict=True):
            doc = keep_probable(predicted, sure)
            record_id = record.get(ID_COLUMN)
            if record_id is not None:
                doc.user_data[ID_COLUMN] = packable(record_id)
            docs.append(doc)
            missing = sum(not token.ent_iob_ for token in doc)
            stats.add(SilverStats(1, len(doc), len(doc.ents), missing, sum(predicted.entities.values())))
    return docs, stats


def manifest_inputs(names: Sequence[str], teachers: Sequence[Language], sources: Sequence[str]) -> dict[str, object]:
    """Return the manifest entries of teachers and texts, with digests of their contents."""
    weights = [digest(teacher.path) if teacher.path else "" for teacher in teachers]
    return {"teachers": list(map(file_input, names, weights)), "texts": list(map(_as_input, sources))}


def _as_input(source: str) -> dict[str, str | None]:
    # Standard input and pipes can be read only once.
    """Return the manifest entry of a file with texts, or of a stream that can be read only once."""
    if source == STDIN or (Path(source).exists() and not Path(source).is_file()):
        return stream_input("standard input" if source == STDIN else source)
    with open_file(source):  # Raises an error with the path if the file cannot be read.
        return file_input(source)


def write_silver(
    teachers: Sequence[Language],
    records: Iterable[Record],
    output: Path,
    sure: SilverThresholds,
    *,
    settings: Mapping[str, object],
    part_size: int,
) -> SilverStats:
    """Annotate records and write them to several `.spacy` files in a directory, which `spacy train` accepts as one
    corpus.

    The same call resumes a stopped one: it skips files that are already written.

    settings (Mapping[str, object]): Inputs and settings that the annotation depends on, such as `manifest_inputs`.
        Raises a RemedyError if the existing output was created with other settings.
    part_size (int): Maximum number of texts in a file.
    """
    made_of = {**settings, **asdict(sure), "part_size": part_size}
    manifest = Manifest.resume(output, made_of, remedy=_RESUME_REMEDY)
    total = SilverStats()
    try:
        texts = tqdm(records, unit=" texts", leave=False, disable=None)
        for number, part in enumerate(minibatch(texts, part_size)):
            name = f"part-{number:05}.spacy"
            if name not in manifest.parts:
                docs, stats = silver(teachers, part, sure)
                write_bytes(output / name, DocBin(docs=docs, store_user_data=True).to_bytes())
                manifest.finish(name, asdict(stats))
            total.add(SilverStats(**manifest.parts[name]))
    finally:
        manifest.save()
    return total
