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

    variable (str): The key of the text in a task's data, or a path of keys with dots between them.
    labels (dict[str, tuple[str, str]]): Label of the pipeline -> name of the `Labels` tag over this text, and its label
        there.
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
    tags = [(element, *_normalised(element)) for element in root.iter()]
    controls = [
        (attributes.get("name", ""), attributes.get("toname", "").split(","), _matches(element, labels))
        for element, name, attributes in tags
        if name == "labels"
    ]
    texts = [attributes for _, name, attributes in tags if name == "text" and attributes.get("name")]
    if not texts or not controls:
        names = ", ".join(sorted({element.tag for element, *_ in tags if element is not root})) or "nothing"
        raise _unusable(f"has no Labels for a Text, but {names}", "Add both: entities are found in plain text only.")
    by_text: dict[str, dict[str, tuple[str, str]]] = {attributes["name"]: {} for attributes in texts}
    for control, to_names, matches in controls:
        for name in map(str.strip, to_names):
            for label, choice in matches.items():
                by_text.get(name, {}).setdefault(label, (control, choice))
    text_tags = [
        TextTag(attributes["name"], _variable_of(attributes), choices)
        for attributes in texts
        if (choices := by_text[attributes["name"]])
    ]
    if not text_tags:
        remedy = 'Name them in the interface, as in <Label value="Person" predicted_values="PER"/>.'
        raise _unusable(
            f"has, for its Text, none of the labels that the model finds: {', '.join(labels) or 'none'}", remedy
        )
    return text_tags


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
    by_prediction: dict[str, str] = {}
    by_name: dict[str, str] = {}
    for choice, attributes in _choices_of(control):
        for value in attributes.get("predicted_values", "").split(","):
            by_prediction.setdefault(value.strip(), choice)
        for value in (choice, attributes.get("value", choice)):
            by_name.setdefault(value, choice)
    exact = {**by_name, **by_prediction}
    folded = {value.casefold(): choice for value, choice in reversed(exact.items())}
    matches = {label: exact.get(label, folded.get(label.casefold())) for label in labels}
    return {label: choice for label, choice in matches.items() if choice}


def _choices_of(control: ElementTree.Element) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the labels of a `Labels` tag, by alias or value as in results, with their attributes.

    Labels in a nested `Labels` belong to that one alone.
    """
    stack = control[::-1]
    while stack:
        element = stack.pop()
        name, attributes = _normalised(element)
        if name != "labels":
            stack += element[::-1]
        choice = attributes.get("alias") or attributes.get("value")
        if name == "label" and choice:
            yield choice, attributes


def _unusable(reason: str, remedy: str) -> ServiceError:
    return ServiceError(422, "unusable_interface", f"The labelling interface {reason}. {remedy}")
