"""Find suspected errors in gold annotation: differences between the gold entities and the entities that a model finds.

A model overfits to the errors in its training data. In cross-validation, the corpus is therefore divided into folds,
and each fold is predicted by a model that is trained on the other folds:

    OUTPUT/folds/1/train.spacy    all Docs except those in the first fold
    OUTPUT/folds/1/model-best     the model that is trained on these Docs

Used by the command `review`. `cross_train` resumes a stopped review.
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
from ..nn.run import use_gpu
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
# The gold entities and the found entities at one position of a text.
EntityPair = tuple[Sequence[FoundEntity], Sequence[FoundEntity]]


@dataclass(frozen=True)
class SuspectedError:
    """A difference between the gold annotation and the model's best label sequence.

    doc (int): Index of the Doc in its corpus.
    gold (tuple[FoundEntity, ...]): Gold entities that the model does not find, with the model's probabilities.
    found (tuple[FoundEntity, ...]): Entities that the model finds in their place.
    suspicion (float): Score from 0 to 1 by which the errors are ranked. See `rank_suspected_errors`.
    """

    doc: int
    gold: tuple[FoundEntity, ...]
    found: tuple[FoundEntity, ...]
    suspicion: float = 0.0

    @property
    def start(self) -> int:
        """Start of the first entity in characters."""
        return min(entity.start for entity in (*self.gold, *self.found))

    @property
    def end(self) -> int:
        """End of the last entity in characters."""
        return max(entity.end for entity in (*self.gold, *self.found))

    @property
    def kind(self) -> str:
        """Error type in the gold annotation if the model is right: "missing", "extra", "label", or "edges" for
        boundaries."""
        if not self.gold:
            return "missing"
        if not self.found:
            return "extra"
        gold, found = ({(entity.start, entity.end) for entity in side} for side in (self.gold, self.found))
        return "label" if gold == found else "edges"


@dataclass(frozen=True)
class ReviewedDoc:
    """A Doc with gold annotation, and the suspected errors in it.

    number (int): Index of the Doc in its corpus.
    doc (Doc): The Doc.
    probability (float): Probability of the whole gold annotation. Tokens with missing annotation may have any tag.
    suspected_errors (tuple[SuspectedError, ...]): The suspected errors, in the order of the text.
    unknown (int): Number of gold entities with labels that the model does not have. They are not reviewed.
    group (str | None): Key of `doc.spans` with nested entities. None if only outermost entities are reviewed.
    """

    number: int
    doc: Doc
    probability: float
    suspected_errors: tuple[SuspectedError, ...]
    unknown: int
    group: str | None = None

    @property
    def entities(self) -> list[Span]:
        """All gold entities, including those with labels that the model does not have."""
        return all_entities(self.doc, self.group)


def rank_suspected_errors(reviewed_docs: Iterable[ReviewedDoc]) -> list[SuspectedError]:
    """Return all suspected errors, the most suspicious first.

    If the model finds an entity, the suspicion is p(found) * (1 - p(gold)). If it finds no entity, the suspicion is
    recall * (1 - p(gold)), with the models' recall of the gold entities. If models miss many entities, a missed entity
    is little evidence of an error.
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
    """Return the suspected errors in the `limit` texts with the most suspicious errors.

    errors (Sequence[SuspectedError]): The ranked errors.
    """
    numbers = {*list(dict.fromkeys(error.doc for error in errors))[:limit]}
    return [error for error in errors if error.doc in numbers]


def find_suspected_errors(nlp: Language, docs: Iterable[tuple[int, Doc]]) -> Iterator[ReviewedDoc]:
    """Compare gold annotation with the predictions of a pipeline.

    The texts are tokenized by the pipeline. If the pipeline was evaluated on gold tokens in training (`gold_preproc`),
    the tokens of the Docs are used.

    docs (Iterable[tuple[int, Doc]]): Docs with gold annotation, and their indices in the corpus.
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
        # If a Doc does not have the group, its nested entities are not annotated.
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
    """Return a Doc with the same tokens and sentences and without other annotation, in the vocabulary of a pipeline."""
    starts: list[bool | int | None] = [token.is_sent_start for token in doc]
    words, spaces = [token.text for token in doc], [bool(token.whitespace_) for token in doc]
    return Doc(nlp.vocab, words=words, spaces=spaces, sent_starts=starts)


def _with_known_labels(doc: Doc, labels: Sequence[str], group: str | None) -> Doc:
    """Return a Doc with missing annotation in place of entities whose label the model does not have.

    group (str | None): Key of `doc.spans` with nested entities, if the model finds nested entities.
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
    """Return the found entities without missing annotation, and those that are equal to a gold entity."""
    missing = [(token.idx, token.idx + len(token)) for token in doc if not token.ent_iob_]
    return [
        entity
        for entity in found
        if entity.offsets in gold or all(end <= entity.start or entity.end <= start for start, end in missing)
    ]


def disagreements(
    number: int, gold: Sequence[FoundEntity], found: Sequence[FoundEntity], *, nested: bool = False
) -> list[SuspectedError]:
    """Return the suspected errors in a Doc: groups of overlapping entities that are only gold or only found.

    nested (bool): Whether entities may be nested. Then two overlapping entities can both be right, so that a gold
        entity and a found entity are grouped only if they share more than half of their characters.
    """
    agreed = {entity.offsets for entity in gold} & {entity.offsets for entity in found}
    sides = [[entity for entity in entities if entity.offsets not in agreed] for entities in (gold, found)]
    groups = _similar(*sides) if nested else _overlapping(*sides)
    errors = [SuspectedError(number, tuple(gold), tuple(found)) for gold, found in groups]
    return sorted(errors, key=lambda error: error.start)


def _overlapping(gold: Sequence[FoundEntity], found: Sequence[FoundEntity]) -> Sequence[EntityPair]:
    """Group entities that overlap, directly or through other entities."""
    groups: list[tuple[list[FoundEntity], list[FoundEntity]]] = []
    end = 0
    for entity, side in sorted([*((e, 0) for e in gold), *((e, 1) for e in found)], key=lambda pair: pair[0].start):
        if entity.start >= end:
            groups.append(([], []))
        groups[-1][side].append(entity)
        end = max(end, entity.end)
    return groups


def _similar(gold: Sequence[FoundEntity], found: Sequence[FoundEntity]) -> Sequence[EntityPair]:
    """Pair each gold entity with the found entity of the largest overlap. Other entities form groups of their own."""
    pairs = [(a, b) for a in gold for b in found if _overlap_ratio(a, b) > 0.5]
    groups, occupied = list[EntityPair](), set[FoundEntity]()
    for pair in sorted(pairs, key=lambda pair: (-_overlap_ratio(*pair), pair[0].label != pair[1].label)):
        if occupied.isdisjoint(pair):
            occupied.update(pair)
            groups.append(([pair[0]], [pair[1]]))
    groups += [([entity], []) for entity in gold if entity not in occupied]
    return groups + [([], [entity]) for entity in found if entity not in occupied]


def _overlap_ratio(a: FoundEntity, b: FoundEntity) -> float:
    """Return the number of shared characters of two entities, divided by the number of characters in either of them."""
    shared = min(a.end, b.end) - max(a.start, b.start)
    return shared / (a.end - a.start + b.end - b.start - shared)


@dataclass(frozen=True)
class CrossValidation:
    """The review of a corpus by cross-validation.

    config (Config): A complete training config. The path of its training data is replaced.
    docs (Sequence[Doc]): The corpus.
    output (Path): The directory of the models.
    folds (int): Number of folds.
    gpu_id (int): The GPU, or -1 for the CPU.
    code (Path | None): A Python file with registered functions to import.
    """

    config: Config
    docs: Sequence[Doc]
    output: Path
    folds: int
    gpu_id: int = -1
    code: Path | None = None

    def folder(self, fold: int) -> Path:
        """Return the directory of a fold, by its index."""
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
    """Return the cross-validation of a corpus.

    Raise an error if the config has no `tener_ner`, or if there are no texts to select the best model on.

    config (str): The path of a config, or the name of a config in this package.
    dev (Path | None): Texts to select the best model on. By default, the config's `paths.dev`.
    settings (Sequence[str]): Settings such as `training.max_steps=100` that override the config.
    """
    composed = compose(config, settings=settings)
    # A component without a factory has a source, which may be a pipeline with a tener_ner.
    if not any(component.get("factory") in ("tener_ner", None) for component in composed["components"].values()):
        reason = f"{config}: there is no tener_ner in its pipeline, which is {', '.join(composed['nlp']['pipeline'])}"
        raise ConfigError(reason, "Use a config with a tener_ner, whose probabilities rank the suspected errors.")
    if dev is not None:
        composed["paths"]["dev"] = str(dev)
    path = composed["paths"].get("dev")
    if path is None or not Path(path).exists():
        raise ConfigError(
            f"paths.dev is {path}, which does not exist", "Pass texts to select the best model: --dev dev.spacy"
        )
    return CrossValidation(composed, docs, output, folds, gpu_id, code)


def cross_train(
    validation: CrossValidation, jobs: int = 1, *, echo: Echo | None = None, begun: Callable[[int, bool], object]
) -> Iterator[ReviewedDoc]:
    """Train the missing models of all folds, and yield the reviewed Docs of each fold.

    An exception stops the running training processes.

    jobs (int): Number of parallel training runs. They share the cores.
    echo (Echo | None): Called with the lines that a training run prints, if there is a single job.
    begun (Callable[[int, bool], object]): Called with each fold and whether its model is already trained.
    """
    folds = assign_folds(validation.docs, validation.folds)
    processes = Processes(jobs, echo if jobs == 1 else None)

    def train_fold(fold: int) -> None:
        docs = [doc for doc, fold_of_doc in zip(validation.docs, folds, strict=True) if fold_of_doc != fold]
        run = fold_run(validation, fold, docs)
        trained = is_trained(run)
        begun(fold, trained)
        if not trained and (failure := train(run, processes)):
            raise RemedyError(f"{run.folder}: {failure}", "See output.log in this directory.")

    with ThreadPoolExecutor(jobs) as pool:
        try:
            for trained in as_completed([pool.submit(train_fold, fold) for fold in range(validation.folds)]):
                trained.result()
        except BaseException:
            # The pool is shut down first, so that no queued training run starts when a running one is stopped.
            pool.shutdown(wait=False, cancel_futures=True)
            processes.stop()
            raise
    # Only now, because the memory that this process takes on the GPU would be missing in the training runs.
    use_gpu(validation.gpu_id)
    for fold in range(validation.folds):
        docs = [(number, doc) for number, doc in enumerate(validation.docs) if folds[number] == fold]
        yield from find_suspected_errors(spacy.load(validation.folder(fold) / MODEL), docs)


def fold_run(validation: CrossValidation, fold: int, docs: Sequence[Doc]) -> TrainingRun:
    """Return the training run of a fold, and write its training data.

    docs (Sequence[Doc]): The training data.
    """
    folder = validation.folder(fold)
    write_docs(folder / DATA, docs)
    config = validation.config.copy()
    config["paths"]["train"] = str(folder / DATA)
    if corpus_reader(config).get("path") != config["paths"]["train"]:
        remedy = "Set path = ${paths.train} in [corpora.train]."
        raise ConfigError("The training corpus of the config has another path", remedy)
    return TrainingRun(folder.name, folder, config, gpu_id=validation.gpu_id, code=validation.code)


def describe_model(nlp: Language, model: str) -> str:
    """Return the name of a pipeline. If it has several components with a CRF, include the name of the first one.

    model (str): The name of the pipeline on the command line.
    """
    names = list(crf_pipes(nlp))
    return f"{names[0]}, the first tener_ner of {model}" if len(names) > 1 else model
