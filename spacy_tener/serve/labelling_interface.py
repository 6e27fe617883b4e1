"""Labelling interfaces of Label Studio: which texts a task has, and which labels entities in them can get."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from .schema import ServiceError

_VARIABLE = re.compile(r"\$([\w.]+)")


@dataclass(frozen=True)
class TextTag:
    """A `Text` tag of a labelling interface.

    variable: The key of the text in a task's data, or a path of keys with dots between them.
    labels: Label of the pipeline -> name of the `Labels` tag over this text, and its label there.
    """

    name: str
    variable: str
    labels: dict[str, tuple[str, str]]

    def text_of(self, data: dict[str, Any]) -> str:
        value: Any = data.get(self.variable)
        if value is None:
            value = data
            for part in self.variable.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        if not isinstance(value, str):
            raise ServiceError(422, "no_text", f"The task has no text '{self.variable}' in its data.")
        try:
            value.encode("utf8")
        except UnicodeEncodeError:
            message = f"The text '{self.variable}' has a lone surrogate, which is not a character."
            raise ServiceError(422, "invalid", message) from None
        return value


def read_interface(config: str, labels: Sequence[str]) -> list[TextTag]:
    """Return the `Text` tags of a labelling interface in which entities of these labels can be marked.

    Refuses an interface that does not fit, and a document type, which could define XML entities to fetch or expand.
    """
    if "<!DOCTYPE" in config:
        raise _unusable("has a document type (<!DOCTYPE>), which is not accepted", "Remove it.")
    try:
        root = ElementTree.fromstring(config)
    except ElementTree.ParseError as error:
        raise _unusable(f"is not XML: {error}", "Start from one of Label Studio's templates.") from None
    tags = [(each, *_normalised(each)) for each in root.iter()]
    controls = [
        (attributes.get("name", ""), attributes.get("toname", "").split(","), _matches(element, labels))
        for element, name, attributes in tags
        if name == "labels"
    ]
    texts = [attributes for _, name, attributes in tags if name == "text" and attributes.get("name")]
    if not texts or not controls:
        others = ", ".join(sorted({element.tag for element, *_ in tags if element is not root})) or "nothing"
        raise _unusable(f"has no Labels for a Text, but {others}", "Add both: entities are found in plain text only.")
    by_text: dict[str, dict[str, tuple[str, str]]] = {attributes["name"]: {} for attributes in texts}
    for control, to_names, matches in controls:
        for known in (by_text[name] for name in map(str.strip, to_names) if name in by_text):
            for own, shown in matches.items():
                known.setdefault(own, (control, shown))
    found = [
        TextTag(attributes["name"], _variable_of(attributes), known)
        for attributes in texts
        if (known := by_text[attributes["name"]])
    ]
    if not found:
        remedy = 'Name them in the interface, as in <Label value="Person" predicted_values="PER"/>.'
        raise _unusable(
            f"has, for its Text, none of the labels that the model finds: {', '.join(labels) or 'none'}", remedy
        )
    return found


def _normalised(element: ElementTree.Element) -> tuple[str, dict[str, str]]:
    """Return the name of a tag and its attributes in lower case, since Label Studio ignores case."""
    return element.tag.lower(), {key.lower(): value for key, value in element.attrib.items()}


def _variable_of(attributes: dict[str, str]) -> str:
    """Return the variable that a `Text` shows."""
    variable = _VARIABLE.fullmatch(attributes.get("value", ""))
    plain = attributes.get("valuetype", "text") == "text" and attributes.get("encoding", "none") == "none"
    if not variable or not plain:
        reason = f"has a Text, '{attributes['name']}', whose value is not one plain text of the task"
        raise _unusable(reason, 'Write it as in <Text name="text" value="$text"/>.')
    return variable[1]


def _matches(control: ElementTree.Element, labels: Sequence[str]) -> dict[str, str]:
    """Return label of the pipeline -> label in Label Studio: the one whose `predicted_values` names it, the same one,
    or one that differs in case only."""
    named: dict[str, str] = {}
    same: dict[str, str] = {}
    for shown, attributes in _labels_of(control):
        for value in attributes.get("predicted_values", "").split(","):
            named.setdefault(value.strip(), shown)
        for value in (shown, attributes.get("value", shown)):
            same.setdefault(value, shown)
    by_name = {**same, **named}
    folded = {value.casefold(): shown for value, shown in reversed(by_name.items())}
    matches = {own: by_name.get(own, folded.get(own.casefold())) for own in labels}
    return {own: shown for own, shown in matches.items() if shown}


def _labels_of(control: ElementTree.Element) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the labels of a `Labels` tag, by alias or value as in results, with their attributes.

    Labels in a nested `Labels` belong to that one alone.
    """
    inside = control[::-1]
    while inside:
        element = inside.pop()
        name, attributes = _normalised(element)
        if name != "labels":
            inside += element[::-1]
        shown = attributes.get("alias") or attributes.get("value")
        if name == "label" and shown:
            yield shown, attributes


def _unusable(reason: str, remedy: str) -> ServiceError:
    return ServiceError(422, "unusable_interface", f"The labelling interface {reason}. {remedy}")
