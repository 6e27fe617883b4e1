"""Parse annotated corpora in JSON.

A file contains JSON objects, called records: one on each line (JSONL), in a list, or one after the other. These formats
are supported:

* `jsonl`: a text with a list of entities. doccano, Prodigy, Label Studio (JSON-MIN) and Stockmark's Japanese corpus use
  this format. The text has the key `text` or `data`. The list has the key `spans`, `entities`, `labels`, `label` or any
  other key.
* `labelstudio`: Label Studio's full export, which the module `label_studio` parses.
* `cluener`: `label` is `{type: {entity: [[first, last], ...]}}`, with the offsets of the first and the last character.
* `tokens`: tokens with tags, as in Hugging Face datasets: `{"tokens": [...], "ner_tags": [...]}`. Tags are strings or
  numbers.

In the format `jsonl`, an entity is a list `[start, end, label]` or an object. In an object, the offsets have the keys
`start` and `end`, `start_offset` and `end_offset`, or `span`. The label has the key `label`, `labels` or `type`. A
spaCy 2 training example, `["text", {"entities": [...]}]`, is also a valid record.

Rejected, ignored, cancelled and unannotated records are omitted and counted. In Prodigy's binary annotation, an
annotator accepts or rejects single spans. Accepted spans become entities, and rejected spans negative examples. The
other tokens get missing annotation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from ..errors import pluralize
from ..inputs import DamagedText, json_fault, parse_json
from .annotation import (
    SEE_HELP,
    SUGGESTED,
    TOKENS,
    AnnotatedText,
    EntitySpan,
    Event,
    JsonRecord,
    Note,
    RecordError,
    check_offset,
    excerpt,
    expect,
)

DECISIONS = ACCEPT, REJECT, IGNORE = "accept", "reject", "ignore"
_LABEL_KEYS = ("label", "labels", "type")
_SPAN_KEYS = ("spans", "entities", "labels", "label")
# Annotation tools add these keys to every annotated record, even if it has no entities.
_ANNOTATED_KEYS = ("answer", "annotation_id")
_TOKEN_KEYS = ("tokens", "words")
_TAG_KEYS = ("ner_tags", "tags", "labels", "ner")
_DECODER = json.JSONDecoder()
_BETWEEN_VALUES = re.compile(r"[\s,]*")


# File parsing.


def read_records(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, object]]:
    """Parse the JSON values in a file.

    If the first line is a complete record, each line is parsed separately, so that large JSONL files need little
    memory. Otherwise, the file is loaded into memory.

    lines (Iterable[tuple[int, str]]): Line numbers and lines.
    RETURNS (Iterator[tuple[int, object]]): Line numbers and JSON values. An invalid value is returned as a RecordError.
    """
    numbered: Iterator[tuple[int, str]] = ((number, line) for number, line in lines if line.strip())
    first = next(numbered, (1, "[]"))
    value = parse_json(first[1])
    numbered = chain([first], numbered)
    return (
        _parse_lines(numbered) if isinstance(value, dict) or _is_pair(value) else _parse_values(_join_lines(numbered))
    )


def check_record(value: object) -> JsonRecord:
    """Validate a record, and return it as a dictionary.

    Raises a RecordError if the value isn't a JSON object or contains invalid Unicode.

    value (object): JSON value, or the RecordError for an invalid value.
    """
    if isinstance(value, RecordError):
        raise value
    if _is_pair(value):
        value = {"text": value[0], **value[1]}  # type: ignore[index]
    if not isinstance(value, dict):
        raise RecordError(
            "the record is not a JSON object", "Each record must be an object with a text and its entities."
        )
    # JSON strings can contain escaped lone surrogates. Docs and UTF-8 files cannot.
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):x}"
        reason = f"the record contains a lone surrogate ({half})"
        raise RecordError(reason, "Remove it, or add the other half of the surrogate pair.") from None
    except RecursionError as error:
        raise _not_json(json_fault(error)) from None
    return value


def _join_lines(numbered: Iterable[tuple[int, str]]) -> str:
    """Join lines to one string. Blank lines that were skipped are inserted again, to keep the line numbers in
    errors.
    """
    text: list[str] = []
    for number, line in numbered:
        text += [""] * (number - 1 - len(text)) + [line]
    return "\n".join(text)


def _is_pair(value: object) -> bool:
    """Return whether a value is a training example in spaCy 2's format: `[text, annotations]`."""
    return isinstance(value, list) and [type(part) for part in value] == [str, dict]


def _parse_lines(numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, object]]:
    """Parse each line as a JSON value. Yields line numbers and values."""
    for number, line in numbered:
        value = parse_json(line)
        yield number, _not_json(value.reason) if isinstance(value, DamagedText) else value


def _parse_values(text: str) -> Iterator[tuple[int, object]]:
    """Parse a JSON list, or a sequence of JSON values. Yields line numbers and values."""
    position = _skip_separators(text, 0)
    in_list = text.startswith("[", position)
    position = _skip_separators(text, position + in_list)
    line, counted = 1, 0
    while position < len(text) and not (in_list and text[position] == "]"):
        line, counted = line + text.count("\n", counted, position), position
        try:
            value, end = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            yield getattr(error, "lineno", line), _not_json(json_fault(error))
            return
        yield line, value
        position = _skip_separators(text, end)
    if in_list and text[position:].strip() != "]":
        line += text.count("\n", counted, position)
        yield line, RecordError("the JSON list has no closing bracket", "Check that the file is complete.")


def _skip_separators(text: str, position: int) -> int:
    """Return the position of the first character that is neither whitespace nor a comma."""
    match = _BETWEEN_VALUES.match(text, position)
    return match.end() if match else position


def _not_json(reason: str) -> RecordError:
    """Create the error for invalid JSON."""
    return RecordError(reason, "Write one JSON object on each line, or a JSON list of objects.")


# Formats with character offsets.


def detect(record: JsonRecord) -> str:
    """Detect a record's format: `labelstudio`, `tokens`, `cluener` or `jsonl`."""
    if isinstance(record.get("data"), dict):
        return "labelstudio"
    if _has_tags(record):
        return TOKENS
    return "cluener" if isinstance(record.get("label"), dict) else "jsonl"


def parse_flat(record: JsonRecord, note: Note) -> list[AnnotatedText]:
    # In Prodigy's binary recipes, the answer (accept, reject or ignore) applies to single spans. In other recipes, it
    # applies to the text.
    """Parse a record in the format `jsonl`.

    note (Note): Function that counts omissions.
    RETURNS (list[AnnotatedText]): A list with the text. Empty if the record was rejected or is not annotated.
    """
    answer, binary = _answer(record, ACCEPT), bool(record.get("_is_binary", record.get("_view_id") == "ner"))
    if answer == IGNORE or (answer != ACCEPT and not binary):
        note(Event.LEFT_OUT, f"its answer is '{answer}'")
        return []
    text = expect(record.get("text", record.get("data")), str, "'text'", "a string")
    lists = {key: value for key, value in record.items() if isinstance(value, list)}
    # A list that contains a valid entity is a list of entities. `read_spans` raises errors for its invalid items.
    found = {key: value for key, value in lists.items() if any(_is_span(item, key in _SPAN_KEYS) for item in value)}
    expected = [lists[key] for key in _SPAN_KEYS if key in lists]
    if not found and not expected and not any(key in record for key in _ANNOTATED_KEYS):
        reason = f"no list of entities under any of: {', '.join(_SPAN_KEYS)}"
        raise RecordError(reason, 'If the text has no entities, add an empty list: "label": [].')
    if is_suggestion(record):
        note(Event.SUGGESTED, f"'{text[:40]}'")
    if len(found) > 1:
        note(Event.LISTS, ", ".join(found))
    # If no list contains a valid entity, parse the longest list under one of the known keys, such as "entities". Its
    # first item then raises a specific error.
    items = chain.from_iterable(found.values() or sorted(expected, key=len)[-1:])
    by_answer: dict[str, list[EntitySpan]] = {decision: [] for decision in DECISIONS}
    for item in items:
        by_answer[_answer(item, answer)] += read_spans(item)
    accepted, rejected, ignored = by_answer.values()
    missing = [(span.start, span.end) for span in (*rejected, *ignored)]
    if binary:
        decided = any(by_answer.values())
        note(Event.BINARY if decided else Event.LEFT_OUT, f"{answer} '{text[:40]}'")
        if not decided:
            return []
        missing = [(0, len(text))]
    return [AnnotatedText(text, tuple(accepted), tuple(missing), incorrect=tuple(rejected))]


def is_suggestion(record: JsonRecord) -> bool:
    """Return whether a record was written by `tener suggest`, and not exported from an annotation tool.

    In such a record, the entities are predictions. Annotation tools add an id or an answer to the records that they
    export.
    """
    return SUGGESTED in record and not any(key in record for key in ("id", *_ANNOTATED_KEYS))


def _is_span(item: object, expected: bool) -> bool:
    """Return whether a list item is an entity in the format `jsonl`.

    item (object): List item in a record.
    expected (bool): Whether the list has a usual key, such as `entities`. In this case, the label may be missing, so
        that `read_spans` reports the error.
    """
    if isinstance(item, list):
        return [type(part) for part in item[:2]] == [int, int] and len(item) == 3
    keys = item.keys() if isinstance(item, dict) else set()
    has_offsets = {"start", "end"} <= keys or {"start_offset", "end_offset"} <= keys or "span" in keys
    # Entities need a label under unusual keys. Otherwise, Prodigy's `tokens`, which also have offsets, would be
    # entities.
    return has_offsets and (expected or not keys.isdisjoint(_LABEL_KEYS))


def _answer(item: object, default: str) -> str:
    """Return the annotator's answer to a record or span in Prodigy's format: `accept`, `reject` or `ignore`.

    item (object): Record or span.
    default (str): Answer if the item contains none.
    """
    answer = item.get("answer", default) if isinstance(item, dict) else default
    if answer not in DECISIONS:
        raise RecordError(f"'answer' is not one of {', '.join(DECISIONS)}: {excerpt(answer)}", SEE_HELP)
    return str(answer)


def parse_cluener(record: JsonRecord) -> list[AnnotatedText]:
    """Parse a record in the format `cluener`.

    RETURNS (list[AnnotatedText]): A list with the text.
    """
    text = expect(record.get("text"), str, "'text'", "a string")
    labels = record.get("label")
    if not isinstance(labels, dict):
        raise RecordError(
            f"'label' is not an object: {excerpt(labels)}",
            'If the text has no entities, add an empty object: "label": {}.',
        )
    spans = []
    for label, entities in labels.items():
        for name, offsets in expect(
            entities, dict, f"'{label}'", 'an object such as {"entity": [[first, last]]}'
        ).items():
            for pair in expect(offsets, list, f"'{name}'", "a list of [first, last] pairs"):
                if not isinstance(pair, list) or len(pair) != 2:
                    raise RecordError(f"'{name}' has offsets that are not [first, last]: {excerpt(pair)}", SEE_HELP)
                spans.append(EntitySpan(check_offset(pair[0]), check_offset(pair[1]) + 1, label, name))
    return [AnnotatedText(text, tuple(spans))]


def read_spans(item: object) -> Iterator[EntitySpan]:
    """Parse an entity in the format `jsonl`.

    item (object): List or object with the offsets and the label.
    YIELDS (EntitySpan): The entity. If the item has several labels, an entity for each label.
    """
    quoted = None
    if isinstance(item, list) and len(item) == 3:
        start, end, labels = item
    elif isinstance(item, dict):
        start = item.get("start", item.get("start_offset"))
        end = item.get("end", item.get("end_offset"))
        labels = next((item[key] for key in _LABEL_KEYS if key in item), None)
        quoted = item.get("text")
        pair = item.get("span")
        if isinstance(pair, list) and len(pair) == 2:
            (start, end), quoted = pair, item.get("name")
    else:
        raise RecordError(f"an entity is not [start, end, label]: {excerpt(item)}", SEE_HELP)
    labels = labels or [""]
    for label in labels if isinstance(labels, list) else [labels]:
        quotation = quoted if isinstance(quoted, str) else None
        yield EntitySpan(check_offset(start), check_offset(end), expect(label, str, "a label", "a string"), quotation)


# Formats with tokens and tags.


def _has_tags(record: JsonRecord) -> bool:
    """Return whether a record is in the format `tokens`.

    The record must contain a list of tokens. It must also contain tags, or no text.
    """
    if not any(_is_strings(record.get(key)) for key in _TOKEN_KEYS):
        return False
    lists = (record.get(key) for key in _TAG_KEYS)
    tagged = any(isinstance(tags, list) and tags and isinstance(tags[0], (str, int)) for tags in lists)
    return tagged or "text" not in record


def parse_tokens(record: JsonRecord, names: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """Parse a record in the format `tokens`.

    names (tuple[str, ...]): Tag names, if the record contains tags as numbers.
    RETURNS (tuple[tuple[str, ...], list[str]]): Tokens, and the tag of each token.
    """
    tokens: Any = next((record[key] for key in _TOKEN_KEYS if key in record), None)
    tags = next((record[key] for key in _TAG_KEYS if key in record), None)
    if not _is_strings(tokens) or not all(tokens):
        raise RecordError(f"'tokens' is not a list of strings: {excerpt(tokens)}", SEE_HELP)
    if not isinstance(tags, list) or len(tags) != len(tokens):
        reason = "the record has tokens, but no list of tags"
        if isinstance(tags, list):
            reason = f"the number of tags ({len(tags)}) differs from the number of tokens ({len(tokens)})"
        fix = f"The tags are read from the first of these keys that exists: {', '.join(_TAG_KEYS)}. {SEE_HELP}"
        raise RecordError(reason, fix)
    return tuple(tokens), [tag if isinstance(tag, str) else _tag_name(tag, names) for tag in tags]


def _tag_name(tag: object, names: tuple[str, ...]) -> str:
    # Losses in transformers ignore tokens with the label -100.
    if tag == -100:
        return "-"
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise RecordError(f"a tag is neither a string nor a number: {excerpt(tag)}", SEE_HELP)
    if not 0 <= tag < len(names):
        fix = "Pass the names of all tags in order, for example --tag-names O,B-PER,I-PER."
        raise RecordError(f"tag {tag} has no name ({pluralize(len(names), 'name')} given)", fix)
    return names[tag]


def _is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)
