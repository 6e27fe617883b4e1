"""Tag schemes: BMES, BIOES, BILOU, IOB1 and IOB2 as strings <-> entities.

Reading is lenient in the way of `conlleval`, and the same for every scheme, so that the entities never depend on which
scheme was detected: `B`, `S` and `U` begin an entity; `I`, `M`, `E` and `L` go on with the entity of the same type
that reaches up to them, and begin one where there is none (after `O`, after another type, after a closed entity, at the
start of the sentence); `E`, `L`, `S` and `U` end it. What does depend on the scheme is whether a tag was well-formed.
Every tag that was not is counted and reported as repaired.

A tag is `O`, a letter and a label (`B-PER`, or `B_PER` as in People's Daily), or `-` where the annotation is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from .records import CorpusError, Entity, Event, Notes

MISSING = "-"

# The letters of an entity's first, inner and last token, and of the token of an entity that has one.
SCHEMES = {
    "IOB2": ("B", "I", "I", "B"),
    "IOB1": ("I", "I", "I", "I"),
    "BIOES": ("B", "I", "E", "S"),
    "BMES": ("B", "M", "E", "S"),
    "BILOU": ("B", "I", "L", "U"),
}

_TAG = re.compile(r"([BIMESLU])[-_](.+)", re.DOTALL)
_CONTINUING = frozenset("IMEL")
_CLOSING = frozenset("ELSU")
# IOB1 also has B, between two neighbours of one type.
_ALPHABETS = {name: frozenset(letters) | {"B"} for name, letters in SCHEMES.items()}


def spans_to_tags(spans: Iterable[Entity], length: int, *, scheme: str, missing: Iterable[int] = ()) -> list[str]:
    """The tags of a sentence of `length` tokens whose entities do not overlap."""
    first, inner, last, single = SCHEMES[check_scheme(scheme)]
    tags = ["O"] * length
    for index in missing:
        tags[index] = MISSING
    previous = Entity(-1, -1, "")
    for span in sorted(spans, key=lambda span: span.start):
        letters = single if span.end - span.start == 1 else first + inner * (span.end - span.start - 2) + last
        if scheme == "IOB1" and previous.end == span.start and previous.label == span.label:
            letters = "B" + letters[1:]
        tags[span.start : span.end] = [f"{letter}-{span.label}" for letter in letters]
        previous = span
    return tags


def check_scheme(scheme: str) -> str:
    if scheme not in SCHEMES:
        raise ValueError(f"Unknown tag scheme '{scheme}'. Use one of: auto, {', '.join(SCHEMES)}.")
    return scheme


class TagReader:
    """Reads the tags of one file, sentence by sentence, and finds out their scheme on the way.

    scheme: The scheme the file is held to, or `auto`.
    source: The file's name, for messages.
    """

    def __init__(self, scheme: str = "auto", *, source: str = "<tags>") -> None:
        self._candidates = list(SCHEMES) if scheme == "auto" else [check_scheme(scheme)]
        self._source = source
        self._letters: set[str] = set()
        self._parsed: dict[str, tuple[str, str]] = {"O": ("O", ""), MISSING: (MISSING, "")}
        # IOB1, IOB2 and the schemes that mark an entity's end disagree about what is well-formed, and which of them a
        # file follows may only be known at its end; so each keeps its own account.
        self._repairs = {"IOB1": Notes(), "IOB2": Notes(), "marked": Notes()}

    @property
    def scheme(self) -> str | None:
        """The scheme of the tags read so far: the first that has all their letters, and of IOB1 and IOB2, which have
        the same letters, the one that fewer tags contradict. None where no tag tells."""
        if not self._letters and len(self._candidates) > 1:
            return None
        if self._candidates[:2] == ["IOB2", "IOB1"]:
            return min(self._candidates[:2], key=lambda name: self._repairs[name].counts.total())
        return self._candidates[0]

    @property
    def repairs(self) -> Notes:
        """The tags read so far that are not well-formed in `scheme`."""
        return self._repairs.get(self.scheme or "", self._repairs["marked"])

    def read(self, tags: Sequence[str], *, line: int = 1) -> tuple[tuple[Entity, ...], tuple[int, ...]]:
        """The entities of a sentence, and the indices of its tokens without annotation.

        line: The line of the first tag; the others follow it line by line.
        """
        spans: list[Entity] = []
        missing: list[int] = []
        begun, open_label, previous_label = 0, "", ""
        for index, tag in enumerate(tags):
            letter, label = self._parsed.get(tag) or self._parse(tag, line + index)
            if open_label and not (letter in _CONTINUING and label == open_label):
                spans.append(Entity(begun, index, open_label))
                self._note("marked", line + index - 1, f"{tags[index - 1]} is not followed by the entity's end")
                open_label = ""
            if label and not open_label:
                begun, open_label = index, label
                self._check_first(tags, index, letter, label == previous_label, line + index)
            if letter == MISSING:
                missing.append(index)
            elif letter in _CLOSING:
                spans.append(Entity(begun, index + 1, label))
                open_label = ""
            previous_label = label
        if open_label:
            spans.append(Entity(begun, len(tags), open_label))
            self._note("marked", line + len(tags) - 1, f"{tags[-1]} is not followed by the entity's end")
        return tuple(spans), tuple(missing)

    def _check_first(self, tags: Sequence[str], index: int, letter: str, same_type: bool, line: int) -> None:
        """Note where a tag that begins an entity is not one that may, or need, begin one."""
        after = f"after {tags[index - 1]}" if index else "at the start of a sentence"
        if letter in _CONTINUING:
            for grammar in ("IOB2", "marked"):
                self._note(grammar, line, f"{tags[index]} {after} begins an entity")
        elif not same_type:
            self._note("IOB1", line, f"{tags[index]} {after} where I would do")

    def _note(self, grammar: str, line: int, detail: str) -> None:
        self._repairs[grammar].add(Event.REPAIRED, detail, line)

    def _parse(self, tag: str, line: int) -> tuple[str, str]:
        match = _TAG.fullmatch(tag)
        if match is None:
            remedy = "A tag is O, a letter of the scheme with a label, as in B-PER, or - for an unknown one."
            raise CorpusError(self._source, f"'{tag[:60]}' is not a tag", remedy, line=line)
        letter, label = match.groups()
        self._narrow(letter, tag, line)
        self._parsed[tag] = (letter, label)
        return letter, label

    def _narrow(self, letter: str, tag: str, line: int) -> None:
        fitting = [name for name in self._candidates if letter in _ALPHABETS[name]]
        if not fitting:
            known = " or ".join(self._candidates)
            reason = f"tag '{tag[:60]}' does not belong to the scheme {known}"
            if self._letters:
                reason += f", which the tags before it ({', '.join(sorted(self._letters))}) belong to"
            remedy = f"Name the right scheme ({', '.join(SCHEMES)}) or bring the file's tags into one."
            raise CorpusError(self._source, reason, remedy, line=line)
        self._candidates = fitting
        self._letters.add(letter)
