"""HTML pages to review gold annotation and to annotate texts.

A page shows texts with suspected errors or with predicted entities. The annotator accepts or corrects the entities, and
downloads these decisions as a JSON file. Each decision replaces gold entities with correct entities:

    [{"doc": 3, "text": "...", "decisions": [{"gold": [[0, 3, "ORG"]], "entities": [[0, 3, "PER"]]}]}]

`apply_to_corpus` applies the decisions from a review to the corpus. `tener convert` creates a new corpus from the
decisions on an annotation page. Used by the commands `review` and `suggest --format page`.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import operator
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spacy.pipeline.spancat import DEFAULT_SPANS_KEY
from spacy.tokens import Doc, Span
from spacy.vocab import Vocab

from ..annotate.encoding import dump_jsonl, encodable
from ..corpora.docs import INCORRECT, open_docbin, serialize_like
from ..errors import InputError, UserError
from ..files import write_text
from ..pages import Heading, make_page
from ..pipeline.entities import FoundEntity, offsets_of, outermost
from ..types import EntityOffsets
from .annotation_tools import RECORD_ID, Task
from .suspected_errors import EntityPair, ReviewedDoc, SuspectedError, most_suspicious, rank_suspected_errors

PAGE, REVIEW_DATA, DOCS = "review.html", "review.jsonl", "docs.jsonl"


def write_review(
    output: Path,
    reviewed: Sequence[ReviewedDoc],
    corpus: str,
    *,
    limit: int,
    label_order: Sequence[str] = (),
    uncalibrated: bool = False,
) -> tuple[list[SuspectedError], list[SuspectedError]]:
    """Write review results to a directory: an HTML page, all suspected errors, and the probability of each Doc's gold
    annotation.

    output (Path): The output directory.
    reviewed (Sequence[ReviewedDoc]): All Docs in the corpus.
    corpus (str): The corpus file's name.
    limit (int): Maximum number of texts on the page.
    label_order (Sequence[str]): The pipeline's labels. Their order determines the label colours.
    uncalibrated (bool): Whether the probabilities are uncalibrated, which the page then says.
    RETURNS (tuple[list[SuspectedError], list[SuspectedError]]): All suspected errors, and the suspected errors on the
        page.
    """
    by_number = {doc.number: doc for doc in reviewed}
    errors = rank_suspected_errors(reviewed)
    shown = most_suspicious(errors, limit)
    write_text(output / REVIEW_DATA, suspected_errors_jsonl(errors, by_number))
    write_text(output / DOCS, docs_jsonl(reviewed))
    page = review_page(shown, by_number, corpus=corpus, label_order=label_order, uncalibrated=uncalibrated)
    write_text(output / PAGE, page)
    return errors, shown


def review_page(
    errors: Sequence[SuspectedError],
    docs: Mapping[int, ReviewedDoc],
    *,
    corpus: str,
    label_order: Sequence[str] = (),
    uncalibrated: bool = False,
) -> str:
    """Return an HTML page to review texts with suspected errors. The texts with the most suspicious errors come first.

    errors (Sequence[SuspectedError]): The errors to show, ranked by suspicion.
    docs (Mapping[int, ReviewedDoc]): All Docs in the corpus, by index.
    corpus (str): The corpus file's name.
    label_order (Sequence[str]): The pipeline's labels. Their order determines the label colours.
    uncalibrated (bool): Whether the probabilities are uncalibrated, which the page then says.
    """
    # Iterate in reverse, so that the most suspicious error of each text overwrites the less suspicious errors.
    most_suspicious = {error.doc: error for error in reversed(errors)}
    numbers = dict.fromkeys(error.doc for error in errors)
    texts = []
    for number in numbers:
        reviewed, first = docs[number], most_suspicious[number]
        text = _text(number, reviewed.doc, _entity_pairs(reviewed), nested=reviewed.group is not None)
        sides = [(error.gold, error.found) for error in reviewed.suspected_errors]
        texts.append({**text, "first": sides.index((first.gold, first.found))})
    labels = {ent.label_ for reviewed in docs.values() for ent in reviewed.entities}
    labels |= {entity.label for error in errors for entity in error.found}
    apply = f"python -m spacy tener review --apply decisions.json {shlex.quote(corpus)} --output mended.spacy"
    suspicious = sum(bool(reviewed.suspected_errors) for reviewed in docs.values())
    values = {"corpus": corpus, "shown": f"{len(texts):,}", "suspicious": f"{suspicious:,}"}
    about = "{shown} of {suspicious} texts with suspected errors, the most suspicious first"
    heading = Heading("Review of {corpus}", about, values, uncalibrated)
    in_order = [*label_order, *sorted(labels.difference(label_order))]
    return _page(heading, texts, in_order, {"stands": "gold", "corpus": corpus, "next": apply}, lang="")


def annotation_page(
    tasks: Sequence[Task],
    labels: Iterable[str],
    *,
    model: str,
    inputs: str,
    label_order: Sequence[str] = (),
    lang: str = "en",
    overlapping: bool = False,
    characters: bool = False,
    uncalibrated: bool = False,
) -> str:
    """Return an HTML page to annotate texts, with predicted entities as suggestions.

    tasks (Sequence[Task]): The texts and their predicted entities.
    labels (Iterable[str]): The labels to annotate. The keys 1 to 9 select the first nine labels.
    model (str): The name of the model that chose the texts, for the title.
    inputs (str): The names of the files that contain the raw texts, for the title.
    label_order (Sequence[str]): The pipeline's labels. Their order determines the label colours.
    lang (str): The language of the texts.
    overlapping (bool): Show nested entities. By default, the page shows only outermost entities.
    characters (bool): Whether the model finds entities inside words, so that each character must be a token.
    uncalibrated (bool): Whether the probabilities are uncalibrated, which the page then says.
    """
    texts = []
    for number, task in enumerate(tasks):
        questions = [((), [entity]) for entity in (task.entities if overlapping else outermost(task.entities))]
        texts.append(_text(number, task.doc, questions, task.record_id, nested=overlapping))
    # `convert` only detects Chinese and English.
    convert = f"python -m spacy tener convert decisions.json --output annotated.spacy --lang {lang}"
    convert += " --overlap spans" * overlapping + " --tokens characters" * characters
    values = {"model": model, "inputs": inputs}
    heading = Heading("Texts to annotate", "Chosen by {model} from {inputs}", values, uncalibrated)
    content = {"label_order": [*label_order], "stands": "found", "corpus": "", "next": convert}
    return _page(heading, texts, list(labels), content, lang=lang)


def _page(
    heading: Heading, texts: list[dict[str, Any]], labels: list[str], content: Mapping[str, Any], *, lang: str
) -> str:
    # The browser saves decisions under this digest of the page's data. Pages with other texts therefore don't load
    # them.
    digest = hashlib.blake2b(json.dumps(texts).encode("ascii"), digest_size=16).hexdigest()
    data = {"texts": texts, "labels": labels, "digest": digest, **content}
    return make_page(__package__, "review", heading, data, lang=lang)


def _entity_pairs(reviewed: ReviewedDoc) -> list[EntityPair]:
    """Return pairs of gold entities and predicted entities, which the page shows side by side.

    There is a pair for each suspected error. For each other gold entity, there is a pair of two identical entities.
    """
    disputed = {
        (entity.start, entity.end, entity.label) for error in reviewed.suspected_errors for entity in error.gold
    }
    settled = [FoundEntity(*offsets_of(ent), None) for ent in reviewed.entities if offsets_of(ent) not in disputed]
    return [
        *((error.gold, error.found) for error in reviewed.suspected_errors),
        *(([entity], [entity]) for entity in settled),
    ]


def _text(
    number: int, doc: Doc, questions: Sequence[EntityPair], record_id: Any = None, *, nested: bool
) -> dict[str, Any]:
    """Return a text and its entities as JSON data for the page.

    The page uses `tokens` to restrict selections to whole tokens. `tokens` is None, which allows any selection, if all
    tokens are single characters or if an entity is not aligned with token boundaries.
    """
    tokens = [(token.idx, token.idx + len(token)) for token in doc]
    edges = {edge for token in tokens for edge in token}
    entities = [entity for sides in questions for side in sides for entity in side]
    is_free = len(tokens) == len(doc.text) or any(not {entity.start, entity.end} <= edges for entity in entities)
    return {
        "doc": number,
        **({} if record_id is None else {RECORD_ID: encodable(record_id)}),
        **({NESTED: True} if nested else {}),
        "text": doc.text,
        "tokens": None if is_free else tokens,
        "questions": [[[_plain(entity) for entity in side] for side in sides] for sides in questions],
    }


def _plain(entity: FoundEntity) -> tuple[int, int, str, float | None]:
    """Convert an entity to a tuple that can be serialized as JSON. The probability is rounded to five decimals."""
    probability = None if entity.probability is None else float(f"{entity.probability:.5f}")
    return entity.start, entity.end, entity.label, probability


def suspected_errors_jsonl(errors: Sequence[SuspectedError], docs: Mapping[int, ReviewedDoc]) -> str:
    """Serialize suspected errors as JSONL, with one error and its text per line."""
    return dump_jsonl(_record(error, docs[error.doc].doc.text) for error in errors)


def _record(error: SuspectedError, text: str) -> dict[str, Any]:
    return {
        "doc": error.doc,
        "kind": error.kind,
        "suspicion": error.suspicion,
        "start": error.start,
        "end": error.end,
        "span": text[error.start : error.end],
        "gold": [asdict(entity) for entity in error.gold],
        "found": [asdict(entity) for entity in error.found],
        "text": text,
    }


def docs_jsonl(docs: Sequence[ReviewedDoc]) -> str:
    """Serialize the probability of each Doc's gold annotation as JSONL. The least probable Docs come first."""
    return dump_jsonl(
        {"doc": reviewed.number, "probability": reviewed.probability, "text": reviewed.doc.text}
        for reviewed in sorted(docs, key=lambda reviewed: reviewed.probability)
    )


# Key that marks texts with nested entities, in the JSON data for pages and for decisions.
NESTED = "nested"
_FIX = (
    "Pass the file that you downloaded from a review page. To convert a file from a page of `suggest --format "
    "page`, use "
    "`spacy tener convert`."
)


@dataclass
class Applied:
    """Numbers of decisions that were applied to a corpus.

    changed (int): Number of decisions that changed the annotation.
    unchanged (int): Number of decisions that confirmed the existing annotation.
    rejected (list[str]): An error message for each decision that could not be applied.
    """

    changed: int = 0
    unchanged: int = 0
    rejected: list[str] = field(default_factory=list)


def read_decisions(path: Path) -> list[dict[str, Any]]:
    """Read and validate a JSON file with decisions. Each record contains a text and the decisions about its entities.

    Raises an InputError if the file can't be read or has another format.
    """
    try:
        records = json.loads(path.read_text(encoding="utf8"))
        for record in records:
            _ = str(record["text"]), int(record["doc"])
            for decision, side in itertools.product(record["decisions"], ("gold", "entities")):
                entities = _entities(decision[side])
                if not all(0 <= start < end and label for start, end, label in entities):
                    raise ValueError(decision)
                if not record.get(NESTED) and any(_overlap(a, b) for a, b in itertools.combinations(entities, 2)):
                    raise ValueError(decision)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}", "Check the path.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), "is not a JSON file of decisions", _FIX) from error
    return list(records)


def apply_to_corpus(data: Path, decisions: Path) -> tuple[bytes, Applied]:
    """Apply the decisions from a review to a `.spacy` file, and return the file's new content.

    Raises a UserError if no decision can be applied.

    data (Path): The `.spacy` file. It is not modified.
    decisions (Path): The JSON file with decisions.
    RETURNS (tuple[bytes, Applied]): The new content, and the numbers of applied and rejected decisions.
    """
    records = read_decisions(decisions)
    corpus = open_docbin(data)
    docs = list(corpus.get_docs(Vocab()))
    applied = apply_decisions(docs, records)
    if applied.rejected and not applied.changed + applied.unchanged:
        about = {str(record.get("corpus") or "texts to annotate") for record in records}
        raise UserError(
            f"{decisions}: no decision can be applied to {data}: {applied.rejected[0]}",
            f"The decisions are about another corpus: {', '.join(sorted(about))}.",
        )
    return serialize_like(corpus, docs), applied


def apply_decisions(docs: Sequence[Doc], records: Iterable[Mapping[str, Any]]) -> Applied:
    """Apply the decisions from a review to Docs in place.

    Each record contains a Doc's index and text, and decisions about its entities. If the Doc at this index has a
    different text, for example because the corpus was shuffled, the Doc is looked up by its text. In this case, the
    decisions are rejected if several Docs have the same text.

    A decision is also rejected if its gold entities were changed after the review.

    docs (Sequence[Doc]): All Docs in the corpus.
    records (Iterable[Mapping[str, Any]]): Records from `read_decisions`.
    """
    applied = Applied()
    by_text: dict[str, list[int]] = defaultdict(list)
    for number, doc in enumerate(docs):
        by_text[doc.text].append(number)
    for record in records:
        text, number = record["text"], record["doc"]
        numbers = by_text.get(text, [])
        if number not in numbers and len(numbers) != 1:
            reason = f"the corpus has {'no such text' if not numbers else f'this text {len(numbers)} times'}"
            applied.rejected += [f"'{text[:40]}': {reason}" for _ in record["decisions"]]
        else:
            _apply(docs[number if number in numbers else numbers[0]], record, applied)
    return applied


def _apply(doc: Doc, record: Mapping[str, Any], applied: Applied) -> None:
    """Apply the decisions in a record to a Doc in place. Add the numbers of applied and rejected decisions to
    `applied`.
    """
    nested = bool(record.get(NESTED))
    group = doc.spans.get(DEFAULT_SPANS_KEY, ()) if nested else ()
    before = {offsets_of(span): span for span in (*group, *doc.ents)}
    exclude = operator.eq if nested else _overlap
    fitting: list[tuple[list[EntityOffsets], list[EntityOffsets], bool]] = []
    for decision in record["decisions"]:
        gold, decided = _entities(decision["gold"]), _entities(decision["entities"])
        rest = [entity for entity in before if entity not in decided]
        # `is_applied` is True if the Doc already contains the decision's entities, and no other entity conflicts with
        # its gold entities.
        is_applied = set(decided) <= before.keys() and not any(exclude(a, b) for a in rest for b in gold)
        if nested and DEFAULT_SPANS_KEY not in doc.spans:
            reason = f"it has no doc.spans['{DEFAULT_SPANS_KEY}']: convert the corpus with `--overlap spans`"
            applied.rejected.append(_describe_rejected(doc, gold or decided, reason))
        elif is_applied or set(gold) <= before.keys():
            fitting.append((gold, decided, is_applied))
        else:
            applied.rejected.append(_describe_rejected(doc, gold or decided, "the annotation has changed"))
    # Remove the old entities of all decisions before adding new entities, because one decision's new entity may overlap
    # another decision's old entity.
    removed = {entity for gold, _, _ in fitting for entity in gold}
    after = {entity: ent for entity, ent in before.items() if entity not in removed}
    for gold, decided, is_applied in fitting:
        aligned = [before.get(entity) or doc.char_span(*entity) for entity in decided]
        spans = [span for span in aligned if span is not None]
        others = () if nested else [ent for entity, ent in after.items() if entity not in decided]
        occupied = _tokens(others)
        reason = "it does not align with tokens" if None in aligned else ""
        if not reason and any(i in occupied for span in spans for i in range(span.start, span.end)):
            reason = "another entity is there"
        if reason:
            gold_spans = [before[entity] for entity in gold if entity in before]
            spans = [span for span in gold_spans if occupied.isdisjoint(range(span.start, span.end))]
            applied.rejected.append(_describe_rejected(doc, decided or gold, reason))
        else:
            applied.changed += not is_applied
            applied.unchanged += is_applied
        after |= {offsets_of(span): span for span in spans}
    if after.keys() != before.keys():
        _write_entities(doc, before, after)


def _write_entities(doc: Doc, before: Mapping[EntityOffsets, Span], after: Mapping[EntityOffsets, Span]) -> None:
    """Set a Doc's `doc.ents` and span groups to the new entities. Unchanged tokens keep their annotation.

    `doc.ents` can't contain overlapping entities. Of overlapping entities, only the longest is stored. If a shorter
    entity extends beyond the longest, its other tokens get missing annotation, as in the output of `convert`.

    before (Mapping[EntityOffsets, Span]): The previous entities.
    after (Mapping[EntityOffsets, Span]): The new entities.
    """
    added, removed = after.keys() - before.keys(), before.keys() - after.keys()
    old, new, occupied = set(map(offsets_of, doc.ents)), set[EntityOffsets](), set[int]()
    for entity in sorted(after, key=lambda entity: (entity[0] - entity[1], entity[0], entity not in old)):
        tokens = _tokens([after[entity]])
        if occupied.isdisjoint(tokens):
            new.add(entity)
            occupied |= tokens
    spans, covered = {**before, **after}, _tokens(after.values())
    changed = _tokens(spans[entity] for entity in added | removed | (old - new))
    doc.set_ents(
        [after[entity] for entity in new - old],
        outside=[doc[i : i + 1] for i in changed - covered],
        missing=[doc[i : i + 1] for i in changed & covered - occupied],
        default="unmodified",
    )
    # Update the two span groups that `convert` writes: all entities including nested entities, and incorrect spans
    # (negative examples).
    if DEFAULT_SPANS_KEY in doc.spans:
        rest = [span for span in doc.spans[DEFAULT_SPANS_KEY] if offsets_of(span) not in removed | added]
        doc.spans[DEFAULT_SPANS_KEY] = sorted([*rest, *(after[entity] for entity in added)])
    if INCORRECT in doc.spans:
        doc.spans[INCORRECT] = [span for span in doc.spans[INCORRECT] if offsets_of(span) not in added]


def _tokens(spans: Iterable[Span]) -> set[int]:
    """Return the indices of all tokens in the given spans."""
    return {token for span in spans for token in range(span.start, span.end)}


def _overlap(a: EntityOffsets, b: EntityOffsets) -> bool:
    return a[0] < b[1] and b[0] < a[1]


def _entities(written: Any) -> list[EntityOffsets]:
    return [(int(start), int(end), str(label)) for start, end, label in written]


def _describe_rejected(doc: Doc, entities: Sequence[EntityOffsets], reason: str) -> str:
    shown = ", ".join(f"{doc.text[start:end]} {label}" for start, end, label in entities)
    return f"'{doc.text[:40]}': {shown}: {reason}"
