"""Corpora with a token and its tag per line: `char TAG`, CoNLL-2003, CoNLL-U-like columns, Weibo; and tag schemes.

By default the first column is the token and the last its tag; a first column that numbers the tokens of each sentence
is skipped. A line with a tab is split at tabs, any other at runs of spaces. Blank lines and the end of the file end a
sentence, and so does `-DOCSTART-`. A line with `#` before the tokens of a sentence is a comment, unless it ends
in a tag and has as many columns as the others. Every other line is data. Of comments, `# text = ` gives the sentence as
it was written, with the white space between its tokens.

Weibo NER writes each character with its position in its word (`科0`, `技1`); the position is removed.

A tag is `O`, a letter and a label (`B-PER`, or `B_PER` as in People's Daily), or `-` for missing annotation. Tags of
every scheme are read as `conlleval` reads them, so that entities do not depend on the detected scheme: `B`, `S` and `U`
begin an entity; `I`, `M`, `E` and `L` continue the entity of the same type directly before them, or begin one if there
is none (after `O`, after another type, after a closed entity, at the start of the sentence); `E`, `L`, `S` and `U` end
it. The scheme only decides whether a tag is well-formed. Tags that are not are counted and reported as repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import RemedyError
from .annotation import EntitySpan, Event, Notes, RecordError, Sentence, excerpt

AUTO = "auto"
MISSING_TAG = "-"
# The letters of an entity's first, inner and last token, and of a single-token entity.
SCHEMES = {
    "IOB2": ("B", "I", "I", "B"),
    "IOB1": ("I", "I", "I", "I"),
    "BIOES": ("B", "I", "E", "S"),
    "BMES": ("B", "M", "E", "S"),
    "BILOU": ("B", "I", "L", "U"),
}
ALIASES = {"BIO": "IOB2", "IOB": "IOB1", "IOBES": "BIOES", "BIOUL": "BILOU"}
"""Other names of schemes."""
_TAG = re.compile(r"([BIMESLU])[-_](.+)", re.DOTALL)
_CONTINUING, _CLOSING = frozenset("IMEL"), frozenset("ELSU")
# IOB1 also has B, between two neighbours of one type.
_ALPHABETS = {name: frozenset(letters) | {"B"} for name, letters in SCHEMES.items()}

DOCUMENT_START = "-DOCSTART-"
_WRITTEN = "# text = "

# Lazy, so that the digit 3 at position 10 (`310`) is 3, and 1 at position 0 (`10`) is 1.
_POSITIONED = re.compile(r"(.+?)([0-9]{1,4})", re.DOTALL)
_SPACES = re.compile(" +")
_REGULAR_SHARE = 0.95  # least share of regular tokens in a file with positions or numbers


# Tags


def find_scheme(name: str) -> str:
    """Return the scheme with a name (in any case) or alias, or `auto`."""
    scheme = AUTO if name.lower() == AUTO else ALIASES.get(name.upper(), name.upper())
    if scheme not in (AUTO, *SCHEMES):
        raise RemedyError(f"Unknown tag scheme '{name}'", f"Use one of: {', '.join((AUTO, *SCHEMES, *ALIASES))}.")
    return scheme


class TagReader:
    """Reads the tags of one file, sentence by sentence, and detects their scheme.

    scheme (str): The scheme that the tags must have, or `auto`.
    """

    def __init__(self, scheme: str = AUTO) -> None:
        scheme = find_scheme(scheme)
        self._candidates = list(SCHEMES) if scheme == AUTO else [scheme]
        self._letters: set[str] = set()
        self._parsed: dict[str, tuple[str, str]] = {"O": ("O", ""), MISSING_TAG: (MISSING_TAG, "")}
        # Well-formed tags differ between IOB1, IOB2 and the schemes that mark an entity's end. The scheme may only be
        # known at the end of the file, so repairs are counted for each.
        self._repairs = {"IOB1": Notes(), "IOB2": Notes(), "marked": Notes()}

    @property
    def scheme(self) -> str | None:
        """Scheme of the tags read so far: the first that has all their letters. Of IOB1 and IOB2, which have the same
        letters, the one with fewer repairs. None before any entity tag."""
        if not self._letters and len(self._candidates) > 1:
            return None
        if self._candidates[:2] == ["IOB2", "IOB1"]:
            return min(self._candidates[:2], key=lambda name: self._repairs[name].counts.total())
        return self._candidates[0]

    @property
    def repairs(self) -> Notes:
        """Notes on the tags read so far that are not well-formed in `scheme`."""
        return self._repairs.get(self.scheme or "", self._repairs["marked"])

    def read(
        self, tags: Sequence[str], *, line: int = 1, step: int = 1
    ) -> tuple[tuple[EntitySpan, ...], tuple[int, ...]]:
        """Return the entities of a sentence, and the indices of its tokens with missing annotation.

        line (int): The line of the first tag.
        step (int): Lines from one tag to the next.
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
            if letter == MISSING_TAG:
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
        """Note a tag that begins an entity although its scheme has another tag for that."""
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
            remedy = (
                "A tag is O, a letter of the scheme with a label, as in B-PER, or - for an unknown one. If tags are in "
                "another column than the last, name it (--tag-column)."
            )
            raise RecordError(f"'{tag[:60]}' is not a tag", remedy, line=line)
        letter, label = match.groups()
        self._narrow(letter, tag, line)
        self._parsed[tag] = (letter, label)
        return letter, label

    def _narrow(self, letter: str, tag: str, line: int) -> None:
        fitting = [name for name in self._candidates if letter in _ALPHABETS[name]]
        if not fitting:
            schemes = " or ".join(self._candidates)
            reason = f"tag '{tag[:60]}' does not belong to the scheme {schemes}"
            if self._letters:
                reason += f", which the tags before it ({', '.join(sorted(self._letters))}) belong to"
            remedy = f"Name the right scheme ({', '.join(SCHEMES)}) or bring the file's tags into one."
            raise RecordError(reason, remedy, line=line)
        self._candidates = fitting
        self._letters.add(letter)


# Columns


Block = list[tuple[int, str]]
"""The numbered lines of a sentence."""


def read_blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Block]]:
    """Yield the lines of each sentence, with the number of the first."""
    block: Block = []
    for number, line in lines:
        if line.strip() and not line.startswith(DOCUMENT_START):
            block.append((number, line))
        elif block:
            yield block[0][0], block
            block = []
    if block:
        yield block[0][0], block


@dataclass
class ColumnReader:
    """Reads the sentences of one file.

    token, tag (int): Indices of their columns, from 0; negative ones count from the end.
    positions (bool): Remove the position in its word from the end of each token, as in Weibo NER.
    width (int): The number of columns; 0 before the first line.
    """

    tags: TagReader
    notes: Notes
    token: int
    tag: int
    positions: bool
    width: int = 0

    def __call__(self, block: Block, line: int) -> list[Sentence]:
        rows = [(number, split_line(text)) for number, text in block]
        written: tuple[int, str] | None = None
        while rows and (block[-len(rows)][1].startswith(_WRITTEN) or self._is_comment(rows[0][1])):
            number, text = block[-len(rows)]
            if text.startswith(_WRITTEN):
                written = number, text.removeprefix(_WRITTEN).strip()
            else:
                self.notes.add(Event.COMMENT, " ".join(rows[0][1])[:60], number)
            del rows[0]
        if not rows:
            return []
        self.width = self.width or len(rows[0][1])
        for number, columns in rows:
            self._check(columns, number)
        first = rows[0][0]
        tokens = [columns[self.token] for _, columns in rows]
        if self.positions:
            tokens = [_without_position(token, number) for token, (number, _) in zip(tokens, rows, strict=True)]
        spans, missing = self.tags.read([columns[self.tag] for _, columns in rows], line=first)
        sentence = Sentence(tuple(tokens), spans, missing, first)
        return [sentence if written is None else as_written(sentence, written[1], written[0])]

    def _is_comment(self, columns: Sequence[str]) -> bool:
        unlike = len(columns) < 2 or len(columns) != (self.width or len(columns)) or not is_tag(columns[-1])
        return columns[0].startswith("#") and unlike

    def _check(self, columns: Sequence[str], number: int) -> None:
        if len(columns) < 2:
            remedy = "Each line needs a token and its tag, with a space or a tab between them."
            if "," in columns[0]:
                remedy += " Save a table with commas as a table with tabs."
            raise RecordError("the line has one column", remedy, line=number)
        if len(columns) != self.width:
            reason = f"the line has {len(columns)} columns, the lines before it {self.width}"
            raise RecordError(reason, "Give every line the same columns.", line=number)
        for name, column in (("token", self.token), ("tag", self.tag)):
            if not -self.width <= column < self.width:
                reason = f"the line has {self.width} columns, and none for the {name}"
                raise RecordError(reason, f"Name an existing column (--{name}-column).", line=number)
        if not columns[self.token]:
            which = "first column" if self.token == 0 else "column"
            remedy = "Begin the line with the token, or remove the line."
            raise RecordError(f"the {which}, the token, is empty", remedy, line=number)


def as_written(sentence: Sentence, text: str, line: int) -> Sentence:
    """Return a sentence with the white space that its tokens have in the text.

    White space other than a single space becomes a token of its own, as spaCy's tokenizers make it.

    line (int): The line of the text.
    """
    tokens: list[str] = []
    spaces: list[bool] = []
    places: list[int] = []
    end = 0
    for token in (*sentence.tokens, ""):
        start = text.find(token, end) if token else len(text)
        gap = text[end:start]
        if start < 0 or gap.strip():
            reason = f"the text has {excerpt(text[end:].lstrip()[:20])} where the tokens have {excerpt(token)}"
            raise RecordError(reason, "Correct the text, or remove its line.", line=line)
        if tokens and gap.startswith(" "):
            spaces[-1], gap = True, gap[1:]
        for new in filter(None, (gap, token)):
            tokens.append(new)
            spaces.append(False)
        places.append(len(tokens) - 1)
        end = start + len(token)
    spans = tuple(EntitySpan(places[span.start], places[span.end - 1] + 1, span.label) for span in sentence.spans)
    # White space between two tokens without annotation has none either: an entity may cross it.
    unknown = {places[index] for index in sentence.missing}
    gaps = set(range(len(tokens))) - set(places)
    unknown |= {gap for gap in gaps if {gap - 1, gap + 1} <= unknown}
    return Sentence(tuple(tokens), spans, tuple(sorted(unknown)), sentence.line, tuple(spaces))


def is_tag(text: str) -> bool:
    return text in ("O", MISSING_TAG) or _TAG.fullmatch(text) is not None


def split_line(line: str) -> list[str]:
    if "\t" in line:
        # A column of spaces is a token that is a space.
        return [column.strip(" ") or column for column in line.rstrip("\t ").split("\t")]
    columns = _SPACES.split(line.rstrip(" "))
    if line.startswith("  ") and len(columns) == 2:
        return [" ", columns[1]]  # the token is itself a space
    return columns


def has_positions(tokens: Iterable[str]) -> bool:
    """Return whether nearly all tokens end in positions that begin at 0 and go up by one."""
    previous, regular, total = -1, 0, 0
    for token in tokens:
        match = _POSITIONED.fullmatch(token)
        position = int(match[2]) if match else previous
        regular += match is not None and position in (0, previous + 1)
        total += 1
        previous = position
    return total > 0 and regular >= _REGULAR_SHARE * total


def has_indices(lines: Iterable[tuple[int, str]]) -> bool:
    """Return whether the first of three or more columns numbers nearly all tokens of each sentence, from 0 or 1."""
    longest, regular, total = 0, 0, 0
    for _, block in read_blocks(lines):
        rows = [split_line(line) for _, line in block]
        while rows and rows[0][0].startswith("#"):
            del rows[0]
        begin = 0 if rows and rows[0][0] == "0" else 1
        regular += sum(len(row) > 2 and row[0] == str(index) for index, row in enumerate(rows, begin))
        total += len(rows)
        longest = max(longest, len(rows))
    return longest > 1 and regular >= _REGULAR_SHARE * total


def _without_position(token: str, number: int) -> str:
    match = _POSITIONED.fullmatch(token)
    if match is None:
        remedy = "Write each as a character and a number (科0), or read the file with the format 'columns'."
        raise RecordError(f"'{token[:60]}' does not end in its position in the word", remedy, line=number)
    return match[1]
