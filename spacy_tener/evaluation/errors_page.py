"""The HTML page with a pipeline's errors on a corpus: scores, a confusion matrix, and texts with marked errors.

    scores, texts = score_texts(nlp, examples)
    html = errors_page(Heading("Errors"), scores, [(example.reference, pairs) for example, pairs in texts])

Used by `evaluate --page`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from timeit import default_timer as timer
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from ..pages import Heading, make_page
from ..pipeline.entities import offsets_of, read_entities
from ..pipeline.finding import SCORES_KEY, run_components
from ..pipeline.tener_ner import TenerNER
from ..types import EntityOffsets
from .scores import CountingScorer, Found, comparison_of, score_rows

BATCH = 256


class Pair(NamedTuple):
    """A gold entity and the overlapping found entity. If an entity is missed or spurious, the other one is None.

    gold (EntityOffsets | None): The gold entity.
    found (EntityOffsets | None): The found entity, in character offsets of the reference.
    is_annotated (bool): Whether the tokens are annotated. If annotation is missing, only `found` is set.
    probability (float | None): Probability of the found entity, or the probability that a missed entity is not an
        entity. None if it is unknown.
    """

    gold: EntityOffsets | None
    found: EntityOffsets | None
    is_annotated: bool = True
    probability: float | None = None

    @property
    def is_error(self) -> bool:
        """Whether both entities differ."""
        return self.is_annotated and self.gold != self.found


def pair_entities(gold: Sequence[EntityOffsets], found: Sequence[EntityOffsets]) -> dict[int, int]:
    """Pair found entities with overlapping gold entities. Return indices of found entities with those of gold entities.

    Equal entities are paired first, then entities that share the most characters.

    gold (Sequence[EntityOffsets]): Gold entities, sorted by their offsets and without overlaps.
    """
    pairs: dict[int, int] = {}
    taken = set[int]()
    for *_, i, j in sorted(_overlaps(gold, found)):
        if i not in taken and j not in pairs:
            taken.add(i)
            pairs[j] = i
    return pairs


def _overlaps(gold: Sequence[EntityOffsets], found: Sequence[EntityOffsets]) -> Iterator[tuple[bool, int, int, int]]:
    """Yield overlapping entities as sort keys: whether they differ, the negative number of shared characters, and the
    indices of the gold and the found entity."""
    ends = [end for _, end, _ in gold]
    for j, entity in enumerate(found):
        for i in range(bisect_right(ends, entity[0]), len(gold)):
            shared = min(gold[i][1], entity[1]) - max(gold[i][0], entity[0])
            if shared <= 0:
                break
            yield gold[i] != entity, -shared, i, j


class PredictedText(NamedTuple):
    """A text that a pipeline has annotated.

    doc (Doc): The annotated Doc.
    found_probabilities (dict[EntityOffsets, float | None]): Probability of each found entity. If an entity is aligned
        to tokens in `doc.ents`, both its exact and its aligned offsets are keys.
    missed_probabilities (dict[EntityOffsets, float]): Probability that each gold entity is not an entity: the minimum
        over all components with a CRF.
    """

    doc: Doc
    found_probabilities: dict[EntityOffsets, float | None]
    missed_probabilities: dict[EntityOffsets, float]


def score_texts(nlp: Language, examples: Iterable[Example]) -> tuple[dict[str, Any], list[tuple[Example, list[Pair]]]]:
    """Score a pipeline like `nlp.evaluate`, and compare the found entities with the gold entities of each example.

    Each text is predicted only once.

    RETURNS (Tuple[Dict[str, Any], List[Tuple[Example, List[Pair]]]]): The scores of `CountingScorer`, and each example
        with its pairs of entities.
    """
    examples, predictions, seconds = list(examples), list[PredictedText](), 0.0
    for batch in minibatch(examples, BATCH):
        predicted, seconds_of_batch = _predict(nlp, batch)
        predictions += predicted
        seconds += seconds_of_batch
    pairs = list(zip(examples, predictions, strict=True))
    scored = [Example(prediction.doc, example.reference) for example, prediction in pairs]
    scores = CountingScorer(nlp).score(scored)
    scores["speed"] = sum(len(prediction.doc) for prediction in predictions) / seconds
    compare = comparison_of(nlp)
    compared = [
        (example, _pairs(with_entities, list(compare(with_entities)), prediction))
        for (example, prediction), with_entities in zip(pairs, scored, strict=True)
    ]
    return scores, compared


def _predict(nlp: Language, examples: Sequence[Example]) -> tuple[list[PredictedText], float]:
    """Annotate a batch of texts, and return the annotated texts and the time in seconds.

    The time does not include the probabilities, which `nlp.pipe` would not compute.
    """
    start, seconds = timer(), 0.0
    for example in examples:
        nlp.make_doc(example.reference.text)  # only to measure its time, as nlp.evaluate does
    docs = [example.predicted.copy() for example in examples]
    gold = [[offsets_of(ent) for ent in example.reference.ents] for example in examples]
    missed_probabilities: list[dict[EntityOffsets, float]] = [{} for _ in examples]
    for name, pipe in nlp.pipeline:
        if not isinstance(pipe, TenerNER):
            docs = run_components(nlp, docs, [name])
            continue
        decodings = list(pipe.decode(docs))
        seconds += timer() - start
        # Probabilities of gold entities must be computed here, before later components merge tokens.
        for entities, missed, decoding in zip(gold, missed_probabilities, decodings, strict=True):
            for offsets, p in zip(entities, decoding.probabilities(entities), strict=True):
                missed[offsets] = min(missed.get(offsets, 1.0), 1.0 - p)
            _ = decoding.batch.best_probabilities  # cached, so that `annotate` below does not compute them
        start = timer()
        pipe.annotate(decodings, spans_key=SCORES_KEY)
    seconds += timer() - start
    return [
        PredictedText(doc, _probabilities(doc), missed) for doc, missed in zip(docs, missed_probabilities, strict=True)
    ], seconds


def _probabilities(doc: Doc) -> dict[EntityOffsets, float | None]:
    """Return the probability of each entity, by its exact offsets and by the offsets of its tokens in `doc.ents`."""
    entities = read_entities(doc)
    by_ent = {entity.ent: entity.probability for entity in entities if entity.ent is not None}
    return by_ent | {entity.offsets: entity.probability for entity in entities}


def _pairs(example: Example, found: Sequence[Found], prediction: PredictedText) -> list[Pair]:
    """Return the pairs of an example in the order of the text, followed by entities found where annotation is
    missing."""
    found_probabilities, missed_probabilities = prediction.found_probabilities, prediction.missed_probabilities
    gold = [offsets_of(ent) for ent in example.reference.ents]
    annotated = [(entity, reference_span) for entity, reference_span in found if reference_span]
    gold_of = pair_entities(gold, [reference_span for _, reference_span in annotated])
    missed = sorted(set(range(len(gold))).difference(gold_of.values()))
    pairs = [Pair(gold[i], None, probability=missed_probabilities.get(gold[i])) for i in missed]
    for j, (entity, reference_span) in enumerate(annotated):
        pairs.append(
            Pair(
                gold[gold_of[j]] if j in gold_of else None, reference_span, probability=found_probabilities.get(entity)
            )
        )
    pairs.sort(key=lambda pair: min(offsets for offsets in (pair.gold, pair.found) if offsets))
    unannotated = [entity for entity, reference_span in found if not reference_span]
    return pairs + [
        Pair(None, entity, is_annotated=False, probability=found_probabilities.get(entity)) for entity in unannotated
    ]


def errors_page(
    heading: Heading,
    scores: Mapping[str, Any] | None,
    texts: Sequence[tuple[Doc, Sequence[Pair]]] = (),
    *,
    labels: Iterable[str] | None = None,
    label_order: Sequence[str] = (),
    lang: str = "en",
    explained: tuple[str, Sequence[int]] = ("", ()),
    review: str = "",
) -> str:
    """Return the page of errors.

    heading (Heading): The title of the page.
    scores (Mapping[str, Any] | None): Scores of `score_texts` or of `nlp.evaluate`. None if the texts are not
        annotated.
    texts (Sequence[tuple[Doc, Sequence[Pair]]]): Docs with their pairs of entities. Empty for a page with scores only.
    labels (Iterable[str] | None): The labels of the pipeline, if they are known. The page lists labels of the corpus
        that the pipeline lacks.
    label_order (Sequence[str]): All labels of the pipeline, in the order in which they get colours.
    lang (str): The language of the texts.
    explained (tuple[str, Sequence[int]]): The URL of a page with explanations, and the indices of its texts.
    review (str): The command that creates a page to review the annotation.
    """
    address, numbers = explained
    data = {
        "review": review,
        "scores": None if scores is None else score_rows(scores),
        "texts": [[doc.text, [_plain(pair) for pair in pairs]] for doc, pairs in texts],
        "unknown": _unknown(texts, labels),
        "label_order": [*label_order],
        "explained": {"page": address, "texts": {str(number): index for index, number in enumerate(numbers)}},
    }
    return make_page(__package__, "errors", heading, data, lang=lang)


def _plain(pair: Pair) -> list[Any]:
    """Return a pair as [gold, found, probability]. If annotation is missing, `gold` is 0."""
    probability = None if pair.probability is None else float(f"{pair.probability:.5f}")
    return [pair.gold if pair.is_annotated else 0, pair.found, probability]


def _unknown(texts: Sequence[tuple[Doc, Sequence[Pair]]], labels: Iterable[str] | None) -> dict[str, int]:
    """Return the number of gold entities with each label that the pipeline does not have."""
    if labels is None:
        return {}
    labels = set(labels)
    counts = Counter(pair.gold[2] for _, pairs in texts for pair in pairs if pair.gold)
    return {label: count for label, count in sorted(counts.items()) if label not in labels}


def most_confident_errors(texts: Sequence[tuple[Doc, Sequence[Pair]]], n: int) -> list[int]:
    """Return the indices of the n texts with the most probable errors, the most probable first."""

    def confidence(number: int) -> float:
        return max(pair.probability or 0.0 for pair in texts[number][1] if pair.is_error)

    wrong = [number for number, (_, pairs) in enumerate(texts) if any(pair.is_error for pair in pairs)]
    return sorted(wrong, key=confidence, reverse=True)[:n]
