"""Reviews of gold annotation: ranks suspected errors, where a model's best reading differs from it.

In cross-validation, each fold of a corpus is reviewed by a model trained on the other folds:

    OUTPUT/folds/1/train.spacy    all Docs but those of the first fold
    OUTPUT/folds/1/model-best     trained on them

The same call resumes a stopped one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

import spacy
from spacy.language import Language
from spacy.tokens import Doc, Span
from spacy.training import Example
from spacy.util import minibatch
from thinc.api import Config

from ..corpora.docs import write_docs
from ..corpora.folds import assign_folds
from ..errors import RemedyError
from ..pipeline.decoding import likelihoods
from ..pipeline.entities import FoundEntity, offsets_of, outermost
from ..pipeline.finding import PipelineNER, crf_pipes
from ..pipeline.nesting import all_entities
from ..training.config_files import ConfigError, corpus_reader
from ..training.overlays import compose
from ..training.runs import MODEL, Echo, Processes, TrainingRun, is_trained, train
from ..types import EntityOffsets

FOLDS, DATA = "folds", "train.spacy"
BATCH = 256
EntityPair = tuple[Sequence[FoundEntity], Sequence[FoundEntity]]
"""The entities at one position of a text: those of the annotation, and those that the model found."""


@dataclass(frozen=True)
class SuspectedError:
    """Where the gold annotation and the model's best reading differ.

    doc (int): The number of the Doc in its corpus, from 0.
    gold (tuple[FoundEntity, ...]): Gold entities that the model does not find, with its probabilities for them.
    found (tuple[FoundEntity, ...]): Entities that it finds instead.
    suspicion (float): The score from 0 to 1 by which errors are ranked; see `rank_suspected_errors`.
    """

    doc: int
    gold: tuple[FoundEntity, ...]
    found: tuple[FoundEntity, ...]
    suspicion: float = 0.0

    @property
    def start(self) -> int:
        return min(entity.start for entity in (*self.gold, *self.found))

    @property
    def end(self) -> int:
        return max(entity.end for entity in (*self.gold, *self.found))

    @property
    def kind(self) -> str:
        """The error of gold if the model is right: "missing", "extra", "label" or "edges"."""
        if not self.gold:
            return "missing"
        if not self.found:
            return "extra"
        gold, found = ({(entity.start, entity.end) for entity in side} for side in (self.gold, self.found))
        return "label" if gold == found else "edges"


@dataclass(frozen=True)
class ReviewedDoc:
    """A Doc of gold annotation with a model's suspected errors about it.

    probability (float): The probability of the gold annotation as a whole, summed over all tags where annotation is
        missing.
    unknown (int): The number of entities with labels that the model does not know, which are not reviewed.
    group (str | None): The group of `doc.spans` with entities within others; None if the outermost are reviewed.
    """

    number: int
    doc: Doc
    probability: float
    suspected_errors: tuple[SuspectedError, ...]
    unknown: int
    group: str | None = None

    @property
    def entities(self) -> list[Span]:
        """The gold entities, also those with labels that the model does not know."""
        return all_entities(self.doc, self.group)


def rank_suspected_errors(reviewed_docs: Iterable[ReviewedDoc]) -> list[SuspectedError]:
    """Return all suspected errors, the most suspicious first.

    If the model finds an entity, suspicion = p(found) * (1 - p(gold)). If it finds none, suspicion = (1 - p(gold)) *
    recall, with the recall of the models on gold: models that miss many entities prove little by finding none.
    """
    docs = list(reviewed_docs)
    entities = sum(len(reviewed.entities) - reviewed.unknown for reviewed in docs)
    missed = sum(len(error.gold) for reviewed in docs for error in reviewed.suspected_errors)
    recall = 1.0 - missed / max(1, entities)
    errors = [
        replace(error, suspicion=_suspicion(error, recall)) for reviewed in docs for error in reviewed.suspected_errors
    ]
    return sorted(errors, key=lambda error: (-error.suspicion, error.doc, error.start))


def _suspicion(error: SuspectedError, recall: float) -> float:
    gold = max((entity.probability or 0.0 for entity in error.gold), default=0.0)
    return (1.0 - gold) * max((entity.probability or 0.0 for entity in error.found), default=recall)


def most_suspicious(errors: Sequence[SuspectedError], limit: int) -> list[SuspectedError]:
    """Return the suspected errors about as many texts as `limit`, those with the most suspicious ones.

    errors (Sequence[SuspectedError]): All errors, from `rank_suspected_errors`.
    """
    numbers = {*list(dict.fromkeys(error.doc for error in errors))[:limit]}
    return [error for error in errors if error.doc in numbers]


def find_suspected_errors(nlp: Language, docs: Iterable[tuple[int, Doc]]) -> Iterator[ReviewedDoc]:
    """Judge numbered Docs with gold annotation by a pipeline.

    The pipeline's tokenizer splits the texts, unless it was evaluated on gold tokens in training (gold_preproc).
    """
    for batch in minibatch(docs, BATCH):
        yield from _review_batch(nlp, batch)


def _review_batch(nlp: Language, batch: Sequence[tuple[int, Doc]]) -> Iterator[ReviewedDoc]:
    pipeline = PipelineNER.of(nlp)
    ner = pipeline.ner
    has_gold_tokens = nlp.config.get("corpora", {}).get("dev", {}).get("gold_preproc", False)
    docs = pipeline.prepare(_without_annotation(nlp, doc) if has_gold_tokens else doc.text for _, doc in batch)
    examples = [
        Example(doc, _with_known_labels(gold, ner.labels, ner.overlap_key))
        for doc, (_, gold) in zip(docs, batch, strict=True)
    ]
    decodings = list(ner.decode(docs))
    gold_probabilities = likelihoods(decodings, [example.reference for example in examples])
    for (number, doc), example, decoding, likelihood in zip(
        batch, examples, decodings, gold_probabilities, strict=True
    ):
        # Without the group, a text says nothing of entities within others.
        group = ner.overlap_key if ner.overlap_key in doc.spans else None
        offsets = [offsets_of(span) for span in all_entities(doc, group)]
        scored = zip(offsets, decoding.probabilities(offsets), strict=True)
        gold = [FoundEntity(*entity, probability) for entity, probability in scored]
        found = decoding.entities if group is not None else outermost(decoding.entities)
        annotated = _annotated_only(example.reference, found, {*offsets})
        unknown = {entity for entity in gold if entity.label not in ner.labels}
        errors = disagreements(number, gold, annotated, nested=group is not None)
        known_errors = tuple(error for error in errors if unknown.isdisjoint(error.gold))
        yield ReviewedDoc(number, doc, likelihood, known_errors, len(unknown), group)


def _without_annotation(nlp: Language, doc: Doc) -> Doc:
    """Return a Doc in the pipeline's vocabulary with the same tokens and sentences, and no other annotation."""
    starts: list[bool | int | None] = [token.is_sent_start for token in doc]
    words, spaces = [token.text for token in doc], [bool(token.whitespace_) for token in doc]
    return Doc(nlp.vocab, words=words, spaces=spaces, sent_starts=starts)


def _with_known_labels(doc: Doc, labels: Sequence[str], group: str | None) -> Doc:
    """Return the Doc with missing annotation in place of entities of other labels, and without others in these.

    group (str | None): The group of `doc.spans` with entities within others, if the model finds any.
    """
    unknown = [span for span in all_entities(doc, group) if span.label_ not in labels]
    if not unknown:
        return doc
    changed = doc.copy()
    if group is not None and group in changed.spans:
        changed.spans[group] = [span for span in changed.spans[group] if span.label_ in labels]
    missing = [changed[token.i : token.i + 1] for token in doc if not token.ent_iob_]
    missing += [changed[ent.start : ent.end] for ent in changed.ents if ent.label_ not in labels]
    changed.set_ents([ent for ent in changed.ents if ent.label_ in labels], missing=missing, default="outside")
    return changed


def _annotated_only(doc: Doc, found: Iterable[FoundEntity], gold: Set[EntityOffsets]) -> list[FoundEntity]:
    """Return the found entities that are gold, or where no annotation is missing."""
    missing = [(token.idx, token.idx + len(token)) for token in doc if not token.ent_iob_]
    return [
        entity
        for entity in found
        if entity.offsets in gold or all(end <= entity.start or entity.end <= start for start, end in missing)
    ]


def disagreements(
    number: int, gold: Sequence[FoundEntity], found: Sequence[FoundEntity], *, nested: bool = False
) -> list[SuspectedError]:
    """Return the entities of only one side, grouped where they share characters.

    nested (bool): Entities may lie within others. Then two are one error only if they share more than half of their
        characters: all others may both be right.
    """
    agreed = {entity.offsets for entity in gold} & {entity.offsets for entity in found}
    sides = [[entity for entity in entities if entity.offsets not in agreed] for entities in (gold, found)]
    groups = _similar(*sides) if nested else _overlapping(*sides)
    errors = [SuspectedError(number, tuple(gold), tuple(found)) for gold, found in groups]
    return sorted(errors, key=lambda error: error.start)


def _overlapping(gold: Sequence[FoundEntity], found: Sequence[FoundEntity]) -> Sequence[EntityPair]:
    groups: list[tuple[list[FoundEntity], list[FoundEntity]]] = []
    end = 0
    for entity, side in sorted([*((e, 0) for e in gold), *((e, 1) for e in found)], key=lambda pair: pair[0].start):
        if entity.start >= end:
            groups.append(([], []))
        groups[-1][side].append(entity)
        end = max(end, entity.end)
    return groups


def _similar(gold: Sequence[FoundEntity], found: Sequence[FoundEntity]) -> Sequence[EntityPair]:
    """Pair the entities that share most, each once. All others are alone."""
    pairs = [(a, b) for a in gold for b in found if _overlap_ratio(a, b) > 0.5]
    groups, occupied = list[EntityPair](), set[FoundEntity]()
    for pair in sorted(pairs, key=lambda pair: (-_overlap_ratio(*pair), pair[0].label != pair[1].label)):
        if occupied.isdisjoint(pair):
            occupied.update(pair)
            groups.append(([pair[0]], [pair[1]]))
    groups += [([entity], []) for entity in gold if entity not in occupied]
    return groups + [([], [entity]) for entity in found if entity not in occupied]


def _overlap_ratio(a: FoundEntity, b: FoundEntity) -> float:
    """Return how many of the characters of two entities both have, from 0 to 1."""
    shared = min(a.end, b.end) - max(a.start, b.start)
    return shared / (a.end - a.start + b.end - b.start - shared)


@dataclass(frozen=True)
class CrossValidation:
    """A corpus that is reviewed in folds, each by a model trained on the others.

    config (Config): A complete config, whose training data is replaced.
    code (Path | None): A Python file with registered functions to import.
    """

    config: Config
    docs: Sequence[Doc]
    output: Path
    folds: int
    gpu_id: int = -1
    code: Path | None = None

    def folder(self, fold: int) -> Path:
        return self.output / FOLDS / str(fold + 1)


def cross_validation(
    config: str,
    docs: Sequence[Doc],
    output: Path,
    folds: int,
    *,
    dev: Path | None,
    settings: Sequence[str],
    gpu_id: int,
    code: Path | None,
) -> CrossValidation:
    """Return the cross-validation of a corpus. Refuse a config without a `tener_ner`, or without texts to choose
    models by.

    config (str): A config's name in the package, or its path.
    dev (Path | None): Texts to choose models by; None for those of the config.
    settings (Sequence[str]): Settings that override the config.
    """
    composed = compose(config, settings=settings)
    # A component without a factory is sourced, perhaps from a pipeline with a tener_ner.
    if not any(component.get("factory") in ("tener_ner", None) for component in composed["components"].values()):
        reason = f"{config}: there is no tener_ner in its pipeline, which is {', '.join(composed['nlp']['pipeline'])}"
        raise ConfigError(reason, "Name a config with one: its probabilities are what judges the annotation.")
    if dev is not None:
        composed["paths"]["dev"] = str(dev)
    path = composed["paths"].get("dev")
    if path is None or not Path(path).exists():
        raise ConfigError(f"paths.dev is {path}, which is not a file to choose models by", "Name one: --dev dev.spacy")
    return CrossValidation(composed, docs, output, folds, gpu_id, code)


def cross_train(
    validation: CrossValidation, jobs: int = 1, *, echo: Echo | None = None, begun: Callable[[int, bool], object]
) -> Iterator[ReviewedDoc]:
    """Train the models of all folds that have none, then judge each fold by its model. An exception ends trainings.

    jobs (int): The number of trainings at once, which share the cores.
    echo (Echo | None): Called with the lines that a training prints, unless there are several at once.
    begun (Callable[[int, bool], object]): Called with each fold, and whether its model is trained already.
    """
    folds = assign_folds(validation.docs, validation.folds)
    processes = Processes(jobs, echo if jobs == 1 else None)

    def train_fold(fold: int) -> None:
        docs = [doc for doc, fold_of_doc in zip(validation.docs, folds, strict=True) if fold_of_doc != fold]
        run = fold_run(validation, fold, docs)
        trained = is_trained(run)
        begun(fold, trained)
        if not trained and (failure := train(run, processes)):
            raise RemedyError(f"{run.folder}: {failure}", "See its output.log.")

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for trained in as_completed([pool.submit(train_fold, fold) for fold in range(validation.folds)]):
                trained.result()
        except BaseException:
            # First, so that no queued training starts when a running one is ended.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    for fold in range(validation.folds):
        docs = [(number, doc) for number, doc in enumerate(validation.docs) if folds[number] == fold]
        yield from find_suspected_errors(spacy.load(validation.folder(fold) / MODEL), docs)


def fold_run(validation: CrossValidation, fold: int, docs: Sequence[Doc]) -> TrainingRun:
    """Return a training run on some Docs, and write these to its directory."""
    folder = validation.folder(fold)
    write_docs(folder / DATA, docs)
    config = validation.config.copy()
    config["paths"]["train"] = str(folder / DATA)
    if corpus_reader(config).get("path") != config["paths"]["train"]:
        remedy = "Set path = ${paths.train} in [corpora.train]."
        raise ConfigError("The config reads its training data from another path", remedy)
    return TrainingRun(folder.name, folder, config, gpu_id=validation.gpu_id, code=validation.code)


def describe_model(nlp: Language, model: str) -> str:
    """Return the name of a pipeline, and of the component whose probabilities count if it has several."""
    names = list(crf_pipes(nlp))
    return f"{names[0]}, the first tener_ner of {model}" if len(names) > 1 else model
