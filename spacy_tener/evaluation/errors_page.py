"""An HTML page that shows a pipeline's errors on a corpus.

The page contains the scores, a confusion matrix, and all texts with highlighted errors.

    scores, texts = score_texts(nlp, examples)
    html = errors_page(Heading("Errors"), scores, [(example.reference, pairs) for example, pairs in texts])

Used by the command `evaluate --page`.
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
from .scores import INTERVAL_KEY, CountingScorer, Found, comparison_of, score_rows

BATCH = 256


class Pair(NamedTuple):
    """A gold entity and the predicted entity that overlaps it.

    For a false negative, `found` is None. For a false positive, `gold` is None.

    gold (EntityOffsets | None): The gold entity.
    found (EntityOffsets | None): The predicted entity, as character offsets in the reference Doc.
    is_annotated (bool): Whether this part of the text is annotated. If not, `gold` is None.
    probability (float | None): The predicted entity's probability. For a false negative, one minus the gold entity's
        probability. None if unknown.
    """

    gold: EntityOffsets | None
    found: EntityOffsets | None
    is_annotated: bool = True
    probability: float | None = None

    @property
    def is_error(self) -> bool:
        """Whether the prediction differs from the gold entity."""
        return self.is_annotated and self.gold != self.found


def pair_entities(gold: Sequence[EntityOffsets], found: Sequence[EntityOffsets]) -> dict[int, int]:
    """Match each predicted entity with at most one overlapping gold entity.

    Identical entities are matched first, followed by the pairs that share the most characters.

    gold (Sequence[EntityOffsets]): Gold entities, sorted by offset and without overlaps.
    found (Sequence[EntityOffsets]): Predicted entities.
    RETURNS (dict[int, int]): Maps the index of each matched predicted entity to the index of its gold entity.
    """
    pairs: dict[int, int] = {}
    taken = set[int]()
    for *_, i, j in sorted(_overlaps(gold, found)):
        if i not in taken and j not in pairs:
            taken.add(i)
            pairs[j] = i
    return pairs


def _overlaps(gold: Sequence[EntityOffsets], found: Sequence[EntityOffsets]) -> Iterator[tuple[bool, int, int, int]]:
    """Yield a sort key for each pair of a gold entity and an overlapping predicted entity.

    A sort key contains whether the entities differ, the number of shared characters as a negative number, the gold
    entity's index, and the predicted entity's index.
    """
    ends = [end for _, end, _ in gold]
    for j, entity in enumerate(found):
        # The gold entities are sorted, so skip those that end before the predicted entity by binary search.
        for i in range(bisect_right(ends, entity[0]), len(gold)):
            shared = min(gold[i][1], entity[1]) - max(gold[i][0], entity[0])
            if shared <= 0:
                break
            yield gold[i] != entity, -shared, i, j


class PredictedText(NamedTuple):
    """A pipeline's predictions for a text.

    doc (Doc): The Doc with the predicted entities.
    found_probabilities (dict[EntityOffsets, float | None]): Probability of each predicted entity. If an entity is
        aligned to the tokens of `doc.ents`, it has two keys: its original offsets and the token offsets.
    missed_probabilities (dict[EntityOffsets, float]): One minus each gold entity's probability. If several components
        have a CRF, the minimum is used.
    """

    doc: Doc
    found_probabilities: dict[EntityOffsets, float | None]
    missed_probabilities: dict[EntityOffsets, float]


def score_texts(nlp: Language, examples: Iterable[Example]) -> tuple[dict[str, Any], list[tuple[Example, list[Pair]]]]:
    """Score a pipeline like `nlp.evaluate`, and compare the predicted entities with the gold entities.

    Both results are based on a single prediction for each text.

    nlp (Language): The pipeline.
    examples (Iterable[Example]): The annotated texts.
    RETURNS (Tuple[Dict[str, Any], List[Tuple[Example, List[Pair]]]]): The scores from `CountingScorer`, and each
        example's entity pairs.
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
    """Run a pipeline on a batch of texts, and measure the time.

    The time excludes computing probabilities, because `nlp.pipe` does not compute them.

    nlp (Language): The pipeline.
    examples (Sequence[Example]): The texts.
    RETURNS (tuple[list[PredictedText], float]): The predictions, and the time in seconds.
    """
    start, seconds = timer(), 0.0
    for example in examples:
        nlp.make_doc(example.reference.text)  # nlp.evaluate includes the time for tokenization
    docs = [example.predicted.copy() for example in examples]
    gold = [[offsets_of(ent) for ent in example.reference.ents] for example in examples]
    missed_probabilities: list[dict[EntityOffsets, float]] = [{} for _ in examples]
    for name, pipe in nlp.pipeline:
        if not isinstance(pipe, TenerNER):
            docs = run_components(nlp, docs, [name])
            continue
        decodings = list(pipe.decode(docs))
        seconds += timer() - start
        # Compute the probabilities of gold entities here, because later components can merge tokens.
        for entities, missed, decoding in zip(gold, missed_probabilities, decodings, strict=True):
            for offsets, p in zip(entities, decoding.probabilities(entities), strict=True):
                missed[offsets] = min(missed.get(offsets, 1.0), 1.0 - p)
            _ = decoding.batch.best_probabilities  # fill the cache now, to exclude this time from the measurement
        start = timer()
        pipe.annotate(decodings, spans_key=SCORES_KEY)
    seconds += timer() - start
    return [
        PredictedText(doc, _probabilities(doc), missed) for doc, missed in zip(docs, missed_probabilities, strict=True)
    ], seconds


def _probabilities(doc: Doc) -> dict[EntityOffsets, float | None]:
    """Return the probability of each predicted entity in a Doc.

    The keys are an entity's original offsets and, if it is aligned to tokens, the token offsets.
    """
    entities = read_entities(doc)
    by_ent = {entity.ent: entity.probability for entity in entities if entity.ent is not None}
    return by_ent | {entity.offsets: entity.probability for entity in entities}


def _pairs(example: Example, found: Sequence[Found], prediction: PredictedText) -> list[Pair]:
    """Return an example's entity pairs, sorted by their position in the text.

    Predicted entities in text parts without annotation are added at the end.
    """
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
    """Return the HTML page that shows a pipeline's errors.

    heading (Heading): The page title.
    scores (Mapping[str, Any] | None): The scores from `score_texts` or `nlp.evaluate`. None if the texts are not
        annotated.
    texts (Sequence[tuple[Doc, Sequence[Pair]]]): Docs with their entity pairs. If empty, the page shows only the
        scores.
    labels (Iterable[str] | None): The pipeline's labels. The page lists all other labels that occur in the corpus. None
        if the labels are unknown.
    label_order (Sequence[str]): All labels of the pipeline, in an order that determines their colors.
    lang (str): The texts' language code.
    explained (tuple[str, Sequence[int]]): The URL of a page with explanations, and the indices of the texts that it
        explains.
    review (str): The command that creates a page to review the annotation, for display on the page.
    """
    address, numbers = explained
    data = {
        "review": review,
        "scores": None if scores is None else score_rows(scores),
        "texts": [[doc.text, [_plain(pair) for pair in pairs]] for doc, pairs in texts],
        "unknown": _unknown(texts, labels),
        "label_order": [*label_order],
        "explained": {"page": address, "texts": {str(number): index for index, number in enumerate(numbers)}},
        "interval": scores and scores.get(INTERVAL_KEY),
    }
    return make_page(__package__, "errors", heading, data, lang=lang)


def _plain(pair: Pair) -> list[Any]:
    """Convert a pair to a JSON-serializable list `[gold, found, probability]`.

    `gold` is 0 if this part of the text is not annotated.
    """
    probability = None if pair.probability is None else float(f"{pair.probability:.5f}")
    return [pair.gold if pair.is_annotated else 0, pair.found, probability]


def _unknown(texts: Sequence[tuple[Doc, Sequence[Pair]]], labels: Iterable[str] | None) -> dict[str, int]:
    """Count the gold entities with labels that the pipeline does not have.

    RETURNS (dict[str, int]): The number of gold entities for each such label.
    """
    if labels is None:
        return {}
    labels = set(labels)
    counts = Counter(pair.gold[2] for _, pairs in texts for pair in pairs if pair.gold)
    return {label: count for label, count in sorted(counts.items()) if label not in labels}


def most_confident_errors(texts: Sequence[tuple[Doc, Sequence[Pair]]], n: int) -> list[int]:
    """Return the indices of the n texts that contain the errors with the highest probability, in descending order."""

    def confidence(number: int) -> float:
        return max(pair.probability or 0.0 for pair in texts[number][1] if pair.is_error)

    wrong = [number for number, (_, pairs) in enumerate(texts) if any(pair.is_error for pair in pairs)]
    return sorted(wrong, key=confidence, reverse=True)[:n]
