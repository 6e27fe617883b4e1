"""JSON records with tokens: Hugging Face's `{"tokens": [...], "ner_tags": [...]}`, the tags as strings or numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import InputError
from .records import SEE_HELP, JsonRecord, RecordError, excerpt

_TOKEN_KEYS = ("tokens", "words")
_TAG_KEYS = ("ner_tags", "tags", "labels", "ner")
_NAME_FILES = ("dataset_info.json", "dataset_infos.json")


def has_tags(record: JsonRecord) -> bool:
    """Return whether a record has tokens, and tags or no text."""
    if not any(is_strings(record.get(key)) for key in _TOKEN_KEYS):
        return False
    lists = (record.get(key) for key in _TAG_KEYS)
    tagged = any(isinstance(tags, list) and tags and isinstance(tags[0], (str, int)) for tags in lists)
    return tagged or "text" not in record


def parse_tokens(record: JsonRecord, names: tuple[str, ...]) -> tuple[tuple[str, ...], list[str]]:
    """Return tokens and their tags. names: Names of numbered tags."""
    tokens: Any = next((record[key] for key in _TOKEN_KEYS if key in record), None)
    tags = next((record[key] for key in _TAG_KEYS if key in record), None)
    if not is_strings(tokens) or not all(tokens):
        raise RecordError(f"'tokens' is not a list of strings: {excerpt(tokens)}", SEE_HELP)
    if not isinstance(tags, list) or len(tags) != len(tokens):
        reason = f"no list of {len(tokens)} tags, one for each token, under any of: {', '.join(_TAG_KEYS)}"
        raise RecordError(reason, SEE_HELP)
    return tuple(tokens), [tag if isinstance(tag, str) else _tag_name(tag, names) for tag in tags]


def _tag_name(tag: object, names: tuple[str, ...]) -> str:
    if tag == -100:  # the index that Hugging Face's losses ignore
        return "-"
    if not isinstance(tag, int) or isinstance(tag, bool):
        raise RecordError(f"a tag is neither a string nor a number: {excerpt(tag)}", SEE_HELP)
    if not 0 <= tag < len(names):
        remedy = "Give the names of all tags in their order: --tag-names O,B-PER,I-PER or a dataset_info.json."
        raise RecordError(f"tag {tag} has no name: {len(names)} names are known", remedy)
    return names[tag]


def read_tag_names(option: str, path: str | Path) -> tuple[str, ...]:
    """Return the names of numbered tags.

    option (str): Names between commas, or a JSON file: a list of names, or the description that Hugging Face keeps of a
        data set. The empty string for such a file beside the corpus, if there is one.
    """
    files = [Path(option)] if option else [Path(path).parent / name for name in _NAME_FILES]
    file = next((file for file in files if file.suffix == ".json" and (option or file.is_file())), None)
    if file is None:
        return tuple(name.strip() for name in option.split(",")) if option else ()
    try:
        found = _find_names(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError) as error:
        raise InputError(str(file), f"cannot be read: {error}", "Give a JSON file with the tags' names.") from error
    if found is None:
        raise InputError(str(file), "there are no names of tags in it", 'Give a JSON list: ["O", "B-PER", ...].')
    return found


def _find_names(value: object) -> tuple[str, ...] | None:
    """Return the first list of names with an O in it, however deep."""
    if is_strings(value) and "O" in value:  # type: ignore[operator]
        return tuple(value)  # type: ignore[arg-type]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((names for part in parts if (names := _find_names(part))), None)


def is_strings(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(part, str) for part in value)
