"""The page of a pipeline's errors on a corpus: scores, a confusion matrix, and each text with its differences."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Example
from spacy.util import minibatch

from ...pages import make_page
from ...pipeline.confidence import best_entities, probabilities_of_places
from ...pipeline.entities import Place, place_of
from ...pipeline.finding import recognisers
from .scores import Scores, known_entities, total

BATCH = 256


class Pair(NamedTuple):
    """An annotated entity and the found entity that overlaps with it; one of them may be None.

    judged: Whether the place is annotated. If annotation is missing there, only `found` is set.
    probability: The probability of the found entity, or one minus that of a missed entity; None if it is not known.
    """

    gold: Place | None
    found: Place | None
    judged: bool = True
    probability: float | None = None

    @property
    def is_error(self) -> bool:
        return self.judged and self.gold != self.found


def pair_entities(gold: Sequence[Place], found: Sequence[Place]) -> list[Pair]:
    """Pair the entities of both sides: equal ones first, then those that share the most characters.

    gold, found: Start, end and label, in text order. The entities of one side do not overlap.
    """
    equal = set(gold) & set(found)
    pairs = [Pair(place, place) for place in sorted(equal)]
    ours, theirs = ([place for place in side if place not in equal] for side in (gold, found))
    free = {*((0, i) for i in range(len(ours))), *((1, j) for j in range(len(theirs)))}
    for _, i, j in sorted(_overlaps(ours, theirs)):
        if (0, i) in free and (1, j) in free:
            free -= {(0, i), (1, j)}
            pairs.append(Pair(ours[i], theirs[j]))
    pairs += [Pair(None, theirs[index]) if side else Pair(ours[index], None) for side, index in free]
    return sorted(pairs, key=lambda pair: min(place for place in (pair.gold, pair.found) if place))


def _overlaps(ours: Sequence[Place], theirs: Sequence[Place]) -> Iterator[tuple[int, int, int]]:
    """Yield pairs of overlapping entities: the negative number of shared characters, to sort by, and both indices."""
    i = j = 0
    while i < len(ours) and j < len(theirs):
        if (shared := min(ours[i][1], theirs[j][1]) - max(ours[i][0], theirs[j][0])) > 0:
            yield -shared, i, j
        if ours[i][1] <= theirs[j][1]:
            i += 1
        else:
            j += 1


def compare_texts(nlp: Language, examples: Iterable[Example]) -> Iterator[tuple[Example, list[Pair]]]:
    """Compare both sides of each example by the rules of `count_entities`, with the probabilities of the pipeline's
    `tener_ner`."""
    ner = next(iter(recognisers(nlp).values()), None)
    if ner is None:
        yield from ((example, _compare(example, {}, {})) for example in examples)
        return
    for batch in minibatch(examples, BATCH):
        rest = iter(batch)
        for views, decoding in ner._decodings(example.predicted for example in batch):
            group = list(itertools.islice(rest, len(views)))
            gold = [[place_of(ent) for ent in example.reference.ents] for example in group]
            of_gold = probabilities_of_places(ner, views, decoding, gold)
            columns = zip(group, best_entities(ner, views, decoding), gold, of_gold, strict=True)
            for example, best, places, values in columns:
                sure = {(each.start, each.end, each.label): each.probability for each in best}
                missed: dict[Place | None, float] = {place: 1.0 - p for place, p in zip(places, values, strict=True)}
                yield example, _compare(example, sure, missed)


def _compare(example: Example, sure: Mapping[Place, float | None], missed: Mapping[Place | None, float]) -> list[Pair]:
    """sure, missed: The probabilities of what is found, and of the annotation to be wrong."""
    reference, places = example.reference, dict[Place, Place]()
    known = list(known_entities(example)) if reference.has_annotation("ENT_IOB") else []
    for ent, (label, start, end) in known:
        span = reference[start:end]
        places[span.start_char, span.end_char, label] = place_of(ent)
    pairs = [
        pair._replace(probability=sure.get(places[pair.found]) if pair.found else missed.get(pair.gold))
        for pair in pair_entities([place_of(ent) for ent in reference.ents], sorted(places))
    ]
    judged = {place_of(ent) for ent, _ in known}
    others = [place for place in map(place_of, example.predicted.ents) if place not in judged]
    return pairs + [Pair(None, place, judged=False, probability=sure.get(place)) for place in others]


def errors_page(
    title: str,
    scores: Scores | None,
    texts: Sequence[tuple[Doc, Sequence[Pair]]] = (),
    *,
    labels: Iterable[str] | None = None,
    about: str = "",
    lang: str = "en",
    explained: tuple[str, Sequence[int]] = ("", ()),
    review: str = "",
) -> str:
    """Return the page.

    scores: None if nothing is annotated.
    texts: Docs with the pairs of `compare_texts`; none for a page with scores only.
    labels: The labels of the pipeline, None if not known. The page lists those of the corpus that it lacks.
    explained: The address of a page with explanations, and the numbers of its texts, in its order.
    review: The command that makes a page for reviewing the annotation.
    """
    address, numbers = explained
    data = {
        "review": review,
        "scores": None if scores is None else _score_rows(scores),
        "texts": [[doc.text, [_plain(pair) for pair in pairs]] for doc, pairs in texts],
        "unknown": _unknown(texts, labels),
        "explained": {"page": address, "texts": {str(number): place for place, number in enumerate(numbers)}},
    }
    return make_page(__package__, "errors", data, title=title, about=about, lang=lang)


def _plain(pair: Pair) -> list[Any]:
    """Return a pair as [gold, found, probability]. Missing annotation is 0 in place of gold."""
    probability = None if pair.probability is None else float(f"{pair.probability:.5f}")
    return [pair.gold if pair.judged else 0, pair.found, probability]


def _score_rows(scores: Scores) -> list[list[Any]]:
    counts = scores.counts or {}
    rows = [("All", scores.overall, total(counts.values()) if counts else None)]
    rows += [(label, score, counts.get(label)) for label, score in sorted(scores.labels.items())]
    return [[label, score.p, score.r, score.f, list(count) if count else None] for label, score, count in rows]


def _unknown(texts: Sequence[tuple[Doc, Sequence[Pair]]], labels: Iterable[str] | None) -> dict[str, int]:
    """Return label -> number of annotated entities, for labels that the pipeline does not have."""
    if labels is None:
        return {}
    known = set(labels)
    counts = Counter(pair.gold[2] for _, pairs in texts for pair in pairs if pair.gold)
    return {label: count for label, count in sorted(counts.items()) if label not in known}


def surest_errors(texts: Sequence[tuple[Doc, Sequence[Pair]]], n: int) -> list[int]:
    """Return the numbers of the n texts whose errors the pipeline is surest of, the surest first."""

    def sureness(number: int) -> float:
        return max(pair.probability or 0.0 for pair in texts[number][1] if pair.is_error)

    wrong = [number for number, (_, pairs) in enumerate(texts) if any(pair.is_error for pair in pairs)]
    return sorted(wrong, key=sureness, reverse=True)[:n]
