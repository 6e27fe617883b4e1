"""Tag schemes: from BMES, BIOES, BILOU, IOB1 and IOB2 as strings to entities.

Reading is lenient in the way of `conlleval`, and the same for every scheme, so that the entities never depend on which
scheme was detected: `B`, `S` and `U` begin an entity; `I`, `M`, `E` and `L` go on with the entity of the same type
that reaches up to them, and begin one where there is none (after `O`, after another type, after a closed entity, at the
start of the sentence); `E`, `L`, `S` and `U` end it. What does depend on the scheme is whether a tag was well-formed.
Every tag that was not is counted and reported as repaired.

A tag is `O`, a letter and a label (`B-PER`, or `B_PER` as in People's Daily), or `-` where the annotation is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import check_choice
from .records import EntitySpan, Event, Notes, RecordError

AUTO = "auto"
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


def is_tag(text: str) -> bool:
    return text in ("O", MISSING) or _TAG.fullmatch(text) is not None


class TagReader:
    """Reads the tags of one file, sentence by sentence, and finds out their scheme on the way.

    scheme: The scheme the file is held to, or `auto`.
    """

    def __init__(self, scheme: str = AUTO) -> None:
        check_choice("tag scheme", scheme, (AUTO, *SCHEMES))
        self._candidates = list(SCHEMES) if scheme == AUTO else [scheme]
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

    def read(
        self, tags: Sequence[str], *, line: int = 1, step: int = 1
    ) -> tuple[tuple[EntitySpan, ...], tuple[int, ...]]:
        """The entities of a sentence, and the indices of its tokens without annotation.

        line: The line of the first tag. step: How many lines the next is further on.
        """
        spans: list[EntitySpan] = []
        missing: list[int] = []
        begun, open_label, previous_label = 0, "", ""
        for index, tag in enumerate(tags):
            letter, label = self._parsed.get(tag) or self._parse(tag, line + step * index)
            if open_label and not (letter in _CONTINUING and label == open_label):
                spans.append(EntitySpan(begun, index, open_label))
                self._note_unfinished(tags[index - 1], line + step * (index - 1))
                open_label = ""
            if label and not open_label:
                begun, open_label = index, label
                self._check_first(tags, index, letter, label == previous_label, line + step * index)
            if letter == MISSING:
                missing.append(index)
            elif letter in _CLOSING:
                spans.append(EntitySpan(begun, index + 1, label))
                open_label = ""
            previous_label = label
        if open_label:
            spans.append(EntitySpan(begun, len(tags), open_label))
            self._note_unfinished(tags[-1], line + step * (len(tags) - 1))
        return tuple(spans), tuple(missing)

    def _check_first(self, tags: Sequence[str], index: int, letter: str, same_type: bool, line: int) -> None:
        """Note where a tag that begins an entity is not one that may, or need, begin one."""
        after = f"after {tags[index - 1]}" if index else "at the start of a sentence"
        if letter in _CONTINUING:
            for grammar in ("IOB2", "marked"):
                self._note(grammar, line, f"{tags[index]} {after} begins an entity")
        elif not same_type:
            self._note("IOB1", line, f"{tags[index]} {after} where I would do")

    def _note_unfinished(self, tag: str, line: int) -> None:
        self._note("marked", line, f"{tag} is not followed by the entity's end")

    def _note(self, grammar: str, line: int, detail: str) -> None:
        self._repairs[grammar].add(Event.REPAIRED, detail, line)

    def _parse(self, tag: str, line: int) -> tuple[str, str]:
        match = _TAG.fullmatch(tag)
        if match is None:
            remedy = "A tag is O, a letter of the scheme with a label, as in B-PER, or - for an unknown one."
            raise RecordError(f"'{tag[:60]}' is not a tag", remedy, line=line)
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
            raise RecordError(reason, remedy, line=line)
        self._candidates = fitting
        self._letters.add(letter)
