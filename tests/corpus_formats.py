"""Write the same sentences in all formats that `tener convert` supports, and count entities with simple parsers."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

_BETWEEN = re.compile(r"[\s,]*")  # between the records of a JSON file

# Tokens, and entities as the indices of their first token and of the token after their last one.
Sentence = tuple[list[str], list[tuple[int, int, str]]]

SENTENCES: list[Sentence] = [
    (list("高勇，男，中国国籍"), [(0, 2, "PER"), (5, 7, "LOC")]),
    (list("今天天气很好。"), []),
    ([*"在", "𠮷", *"野家北京店"], [(1, 4, "ORG"), (4, 6, "LOC")]),
    (list("李明#2号\u3000说：“去上海吧”"), [(0, 2, "PER"), (10, 12, "LOC")]),
    (["京"], [(0, 1, "LOC")]),
    (list("王小明和张三去了中国银行上海分行。"), [(0, 3, "PER"), (4, 6, "PER"), (8, 16, "ORG")]),
]


@dataclass(frozen=True)
class Counted:
    """The expected content of a file, counted by a simple parser."""

    sentences: int
    tokens: int
    entities: int
    missing: int = 0


def tags_of(sentence: Sentence) -> list[str]:
    tokens, spans = sentence
    tags = ["O"] * len(tokens)
    for start, end, label in spans:
        tags[start:end] = [f"B-{label}"] + [f"I-{label}"] * (end - start - 1)
    return tags


def text_of(sentence: Sentence) -> tuple[str, list[tuple[int, int, str, str]]]:
    """Return the text, and its entities with offsets, label and text."""
    tokens, spans = sentence
    offsets = list(accumulate(map(len, tokens), initial=0))
    named = ((start, end, label, "".join(tokens[start:end])) for start, end, label in spans)
    return "".join(tokens), [(offsets[start], offsets[end], label, name) for start, end, label, name in named]


# Columns


def _rows(sentences: Sequence[Sentence], row: Callable[[int, str, str], str]) -> str:
    blocks = (
        "".join(row(index, *pair) + "\n" for index, pair in enumerate(zip(sentence[0], tags_of(sentence), strict=True)))
        for sentence in sentences
    )
    return "\n".join(blocks)


def columns(sentences: Sequence[Sentence]) -> str:
    return _rows(sentences, lambda _, token, tag: f"{token}\t{tag}")


def conll2003(sentences: Sequence[Sentence]) -> str:
    return "-DOCSTART-\t-X-\tO\n\n" + _rows(sentences, lambda _, token, tag: f"{token}\tNN\t{tag}")


def numbered(sentences: Sequence[Sentence]) -> str:
    return "# sent_id = a\n" + _rows(sentences, lambda index, token, tag: f"{index + 1}\t{token}\t_\t{tag}")


def weibo(sentences: Sequence[Sentence]) -> str:
    return _rows(sentences, lambda index, token, tag: f"{token}{index % 3}\t{tag}")


def conlleval_count(tags: Sequence[str]) -> int:
    """Return the number of entities that conlleval counts, with any tagging scheme."""
    count, previous = 0, ("O", "")
    for tag in tags:
        letter, _, label = (tag, "", "") if tag in ("O", "-") else (tag[0], tag[1], tag[2:])
        goes_on = letter in "IMEL" and label == previous[1] and previous[0] not in "ELSU"
        count += bool(label) and not goes_on
        previous = (letter, label)
    return count


def count_columns(text: str, comments: int, tag: int = -1) -> Counted:
    blocks: list[list[str]] = [[]]
    for line in text.removeprefix("\ufeff").split("\n"):
        if not line.strip() or line.startswith("-DOCSTART-"):
            blocks.append([])
        elif line.startswith("#") and comments and not blocks[-1]:
            comments -= 1
        else:
            blocks[-1].append(re.split("\t+" if "\t" in line else " +", line.strip("\r\t "))[tag].strip(" "))
    blocks = [tags for tags in blocks if tags]
    entities = sum(map(conlleval_count, blocks))
    return Counted(len(blocks), sum(map(len, blocks)), entities, sum(tags.count("-") for tags in blocks))


# JSON


def _lines(records: Iterator[Any]) -> str:
    return "".join(json.dumps(record, ensure_ascii=index % 2 == 0) + "\n" for index, record in enumerate(records))


def doccano(sentences: Sequence[Sentence]) -> str:
    texts = (text_of(sentence) for sentence in sentences)
    return _lines({"id": 7, "text": text, "label": [span[:3] for span in spans]} for text, spans in texts)


def prodigy(sentences: Sequence[Sentence]) -> str:
    def record(sentence: Sentence) -> dict[str, Any]:
        text, spans = text_of(sentence)
        listed = [{"start": start, "end": end, "label": label} for start, end, label, _ in spans]
        return {"text": text, "spans": listed, "answer": "accept"}

    return _lines(map(record, sentences))


def spacy2(sentences: Sequence[Sentence]) -> str:
    texts = (text_of(sentence) for sentence in sentences)
    pairs = [[text, {"entities": [span[:3] for span in spans]}] for text, spans in texts]
    return json.dumps(pairs, ensure_ascii=False, indent=1)


def label_studio(sentences: Sequence[Sentence]) -> str:
    def record(sentence: Sentence) -> dict[str, Any]:
        text, spans = text_of(sentence)
        values = ({"start": s, "end": e, "labels": [label], "text": name} for s, e, label, name in spans)
        result = [{"type": "labels", "to_name": "text", "value": value} for value in values]
        return {"data": {"text": text}, "annotations": [{"result": result}]}

    return json.dumps([record(sentence) for sentence in sentences], ensure_ascii=False, indent=1)


def cluener(sentences: Sequence[Sentence]) -> str:
    def record(sentence: Sentence) -> dict[str, Any]:
        text, spans = text_of(sentence)
        labels: dict[str, dict[str, list[list[int]]]] = {}
        for start, end, label, name in spans:
            labels.setdefault(label, {}).setdefault(name, []).append([start, end - 1])
        return {"text": text, "label": labels}

    return _lines(map(record, sentences))


def hugging_face(sentences: Sequence[Sentence]) -> str:
    return _lines({"tokens": sentence[0], "ner_tags": tags_of(sentence)} for sentence in sentences)


def values_of(text: str) -> list[Any]:
    """Return the records of a JSON or JSONL file."""
    values, place = [], 0
    text = text.removeprefix("\ufeff").strip()
    if text.startswith("[") and text.endswith("]") and not text.startswith('["'):
        text = text[1:-1]
    while (place := _BETWEEN.match(text, place).end()) < len(text):  # type: ignore[union-attr]
        value, place = json.JSONDecoder().raw_decode(text, place)
        values.append(value)
    return values


def count_json(text: str) -> Counted:
    values = values_of(text)
    return Counted(len(values), 0, sum(map(_spans_in, values)))


def _spans_in(value: Any) -> int:
    """Return the number of entities anywhere in a JSON value."""
    if isinstance(value, dict):
        if isinstance(value.get("tokens"), list):
            return conlleval_count(value["ner_tags"])
        if {"start", "end"} <= value.keys():
            labels = value.get("labels", value.get("label"))
            return len(labels) if isinstance(labels, list) else 1
        if isinstance(value.get("label"), dict):
            return sum(len(places) for names in value["label"].values() for places in names.values())
        return sum(map(_spans_in, value.values()))
    if isinstance(value, list):
        if len(value) == 3 and [type(part) for part in value] == [int, int, str]:
            return 1
        return sum(map(_spans_in, value))
    return 0


PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}
COLUMNS = {write.__name__: write for write in (columns, conll2003, numbered, weibo)}
JSON = {write.__name__: write for write in (doccano, prodigy, spacy2, label_studio, cluener, hugging_face)}
