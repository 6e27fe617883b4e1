"""Parse corpora with one token and its tag on each line: CoNLL-2003, Weibo NER, CoNLL-U and similar formats.

    # text = Hugo Boss AG        the original text, as in CoNLL-U (optional)
    Hugo  B-PER                  token in the first column, tag in the last
    Boss  I-PER
    AG    O
                                 a blank line ends the sentence

* Lines that contain a tab are split at tabs, all other lines at runs of spaces.
* If the first column contains the number of each token in its sentence, the second column contains the tokens.
* Blank lines, lines that begin with `-DOCSTART-` and the end of the file end a sentence.
* A line that begins with `#` before the first token is a comment, unless it ends in a tag and has as many columns as
  the other lines.
* A comment `# text = ` contains the original text, from which the whitespace between tokens is restored.
* Weibo NER appends to each character its position in the word (`科0`, `技1`). The position is removed.

A tag is `O`, a prefix and a label (`B-PER`, or `B_PER` as in People's Daily), or `-` for missing annotation. Tags are
interpreted as in the script `conlleval`, so that the entities don't depend on the detected tag scheme:

* `B`, `S` and `U` begin an entity.
* `I`, `M`, `E` and `L` continue an entity of the same type, or begin an entity if there is none to continue: at the
  start of a sentence, after `O`, after another type, or after a tag that ends an entity.
* `E`, `L`, `S` and `U` end an entity.

The tag scheme only determines which sequences are well-formed. Other tags are counted and reported as repaired.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import RemedyError
from .annotation import EntitySpan, Event, Notes, RecordError, Sentence, excerpt

AUTO = "auto"
MISSING_TAG = "-"
# Prefixes of an entity's first, inner and last token, and of an entity of one token.
SCHEMES = {
    "IOB2": ("B", "I", "I", "B"),
    "IOB1": ("I", "I", "I", "I"),
    "BIOES": ("B", "I", "E", "S"),
    "BMES": ("B", "M", "E", "S"),
    "BILOU": ("B", "I", "L", "U"),
}
# Alternative names of tag schemes.
ALIASES = {"BIO": "IOB2", "IOB": "IOB1", "IOBES": "BIOES", "BIOUL": "BILOU"}
_TAG = re.compile(r"([BIMESLU])[-_](.+)", re.DOTALL)
_CONTINUING, _CLOSING = frozenset("IMEL"), frozenset("ELSU")
# IOB1 uses B only between two adjacent entities of the same type.
_ALPHABETS = {name: frozenset(letters) | {"B"} for name, letters in SCHEMES.items()}

DOCUMENT_START = "-DOCSTART-"
_TEXT_COMMENT = "# text = "

# The first group is lazy, so that `310` is the character 3 at position 10, and `10` is the character 1 at position 0.
_POSITIONED = re.compile(r"(.+?)([0-9]{1,4})", re.DOTALL)
_SPACES = re.compile(" +")
_MIN_REGULAR = 0.95  # Minimum fraction of tokens with the expected number, to treat a file as numbered.


# Tags


def find_scheme(name: str) -> str:
    """Return the canonical name of a tag scheme, given its name or alias in any case. `auto` is returned as is."""
    scheme = AUTO if name.lower() == AUTO else ALIASES.get(name.upper(), name.upper())
    if scheme not in (AUTO, *SCHEMES):
        raise RemedyError(f"Unknown tag scheme '{name}'", f"Use one of: {', '.join((AUTO, *SCHEMES, *ALIASES))}.")
    return scheme


class TagReader:
    """Convert the tags of one file to entities, sentence by sentence, and detect their tag scheme.

    scheme (str): Tag scheme that the tags must belong to, or `auto` to detect it.
    """

    def __init__(self, scheme: str = AUTO) -> None:
        scheme = find_scheme(scheme)
        self._candidates = list(SCHEMES) if scheme == AUTO else [scheme]
        self._prefixes: set[str] = set()
        self._parsed: dict[str, tuple[str, str]] = {"O": ("O", ""), MISSING_TAG: (MISSING_TAG, "")}
        # Which tags are well-formed differs between IOB1, IOB2 and the schemes that mark the end of an entity. The
        # scheme may be known only at the end of the file, so repairs are counted for all three.
        self._repairs = {"IOB1": Notes(), "IOB2": Notes(), "marked": Notes()}

    @property
    def scheme(self) -> str | None:
        """Return the tag scheme of the tags so far, or None before the first entity tag.

        It is the first scheme that has all prefixes. IOB1 and IOB2 have the same prefixes; the one with fewer repairs
        is returned.
        """
        if not self._prefixes and len(self._candidates) > 1:
            return None
        if self._candidates[:2] == ["IOB2", "IOB1"]:
            return min(self._candidates[:2], key=lambda name: self._repairs[name].counts.total())
        return self._candidates[0]

    @property
    def repairs(self) -> Notes:
        """Return the corrections of tags that are not well-formed in the detected scheme."""
        return self._repairs.get(self.scheme or "", self._repairs["marked"])

    def read(
        self, tags: Sequence[str], *, line: int = 1, step: int = 1
    ) -> tuple[tuple[EntitySpan, ...], tuple[int, ...]]:
        """Return the entities of a sentence, and the indices of tokens with missing annotation.

        tags (Sequence[str]): Tag of each token.
        line (int): Line of the first tag.
        step (int): Number of lines from one tag to the next: 1 in columns, 0 if all tags are in one record.
        """
        spans: list[EntitySpan] = []
        missing: list[int] = []
        entity_start, open_label, previous_label = 0, "", ""
        for index, tag in enumerate(tags):
            letter, label = self._parsed.get(tag) or self._parse(tag, line + step * index)
            if open_label and not (letter in _CONTINUING and label == open_label):
                spans.append(EntitySpan(entity_start, index, open_label))
                self._note_unfinished(tags[index - 1], line + step * (index - 1))
                open_label = ""
            if label and not open_label:
                entity_start, open_label = index, label
                self._check_first(tags, index, letter, label == previous_label, line + step * index)
            if letter == MISSING_TAG:
                missing.append(index)
            elif letter in _CLOSING:
                spans.append(EntitySpan(entity_start, index + 1, label))
                open_label = ""
            previous_label = label
        if open_label:
            spans.append(EntitySpan(entity_start, len(tags), open_label))
            self._note_unfinished(tags[-1], line + step * (len(tags) - 1))
        return tuple(spans), tuple(missing)

    def _check_first(self, tags: Sequence[str], index: int, letter: str, same_type: bool, line: int) -> None:
        """Record a repair if the first tag of an entity is not the one that the scheme prescribes there."""
        after = f"after {tags[index - 1]}" if index else "at the start of a sentence"
        if letter in _CONTINUING:
            for scheme_group in ("IOB2", "marked"):
                self._note(scheme_group, line, f"{tags[index]} {after} begins an entity")
        elif not same_type:
            self._note("IOB1", line, f"{tags[index]} {after} where I would do")

    def _note_unfinished(self, tag: str, line: int) -> None:
        """Record a repair if an entity ends without E, L, S or U in a scheme that has these prefixes."""
        self._note("marked", line, f"{tag} is not followed by the entity's end")

    def _note(self, scheme_group: str, line: int, detail: str) -> None:
        self._repairs[scheme_group].add(Event.REPAIRED, detail, line)

    def _parse(self, tag: str, line: int) -> tuple[str, str]:
        match = _TAG.fullmatch(tag)
        if match is None:
            remedy = (
                "A tag is O, a prefix with a label, such as B-PER, or - for missing annotation. If the tags are in "
                "another column than the last, set --tag-column."
            )
            raise RecordError(f"'{tag[:60]}' is not a tag", remedy, line=line)
        letter, label = match.groups()
        self._exclude_schemes(letter, tag, line)
        self._parsed[tag] = (letter, label)
        return letter, label

    def _exclude_schemes(self, letter: str, tag: str, line: int) -> None:
        """Exclude the tag schemes that don't have a prefix. Raises a RecordError if no scheme is left."""
        matching = [name for name in self._candidates if letter in _ALPHABETS[name]]
        if not matching:
            schemes = " or ".join(self._candidates)
            reason = f"tag '{tag[:60]}' does not belong to the scheme {schemes}"
            if self._prefixes:
                reason += f", but the tags before it ({', '.join(sorted(self._prefixes))}) do"
            remedy = f"Set the right scheme ({', '.join(SCHEMES)}), or convert all tags of the file to one scheme."
            raise RecordError(reason, remedy, line=line)
        self._candidates = matching
        self._prefixes.add(letter)


# Columns


# Lines of one sentence, with their numbers.
Block = list[tuple[int, str]]


def read_blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Block]]:
    """Yield the lines of each sentence, with the number of the first line."""
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
    """Parse the sentences of one file in columns.

    tags (TagReader): Converts tags to entities.
    notes (Notes): Log of corrections.
    token (int): Index of the column with the token. Negative indices count from the last column.
    tag (int): Index of the column with the tag. Negative indices count from the last column.
    positions (bool): Remove the position in the word from the end of each token, as in Weibo NER.
    width (int): Number of columns, or 0 before the first line.
    """

    tags: TagReader
    notes: Notes
    token: int
    tag: int
    positions: bool
    width: int = 0

    def __call__(self, block: Block, line: int) -> list[Sentence]:
        """Return the sentence of a block in a list, or an empty list if the block contains only comments."""
        rows = [(number, split_line(text)) for number, text in block]
        written: tuple[int, str] | None = None
        while rows and (block[-len(rows)][1].startswith(_TEXT_COMMENT) or self._is_comment(rows[0][1])):
            number, text = block[-len(rows)]
            if text.startswith(_TEXT_COMMENT):
                written = number, text.removeprefix(_TEXT_COMMENT).strip()
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
        return [sentence if written is None else align_with_text(sentence, written[1], written[0])]

    def _is_comment(self, columns: Sequence[str]) -> bool:
        """Return whether a line that begins with `#` is a comment. A token may begin with `#` as well, for example a
        hashtag.
        """
        differs = len(columns) < 2 or len(columns) != (self.width or len(columns)) or not is_tag(columns[-1])
        return columns[0].startswith("#") and differs

    def _check(self, columns: Sequence[str], number: int) -> None:
        """Raise a RecordError if a line lacks columns or its token is empty."""
        if len(columns) < 2:
            remedy = "Each line needs a token and its tag, separated by a space or a tab."
            if "," in columns[0]:
                remedy += " Convert a file with comma-separated values to tab-separated values."
            raise RecordError("the line has one column", remedy, line=number)
        if len(columns) != self.width:
            reason = f"the line has {len(columns)} columns, the lines before it {self.width}"
            raise RecordError(reason, "Use the same number of columns in every line.", line=number)
        for name, column in (("token", self.token), ("tag", self.tag)):
            if not -self.width <= column < self.width:
                reason = f"the line has {self.width} columns, so the column of the {name} doesn't exist"
                raise RecordError(reason, f"Set --{name}-column to an existing column.", line=number)
        if not columns[self.token]:
            which = "first column" if self.token == 0 else "column"
            remedy = "Add the token or remove the line."
            raise RecordError(f"the {which}, the token, is empty", remedy, line=number)


def align_with_text(sentence: Sentence, text: str, line: int) -> Sentence:
    """Return the sentence with the whitespace that separates its tokens in the original text.

    A single space is stored in `spaces`. Any other whitespace becomes a token, as in spaCy's tokenizers.

    text (str): Original text of the sentence.
    line (int): Line of the text, for errors.
    """
    tokens: list[str] = []
    spaces: list[bool] = []
    token_indices: list[int] = []
    end = 0
    for token in (*sentence.tokens, ""):
        start = text.find(token, end) if token else len(text)
        gap = text[end:start]
        if start < 0 or gap.strip():
            reason = f"the text has {excerpt(text[end:].lstrip()[:20])}, but the next token is {excerpt(token)}"
            raise RecordError(reason, "Correct the text, or remove its line.", line=line)
        if tokens and gap.startswith(" "):
            spaces[-1], gap = True, gap[1:]
        for new in filter(None, (gap, token)):
            tokens.append(new)
            spaces.append(False)
        token_indices.append(len(tokens) - 1)
        end = start + len(token)
    spans = tuple(
        EntitySpan(token_indices[span.start], token_indices[span.end - 1] + 1, span.label) for span in sentence.spans
    )
    # Whitespace between two tokens with missing annotation gets missing annotation too, since an entity may contain it.
    unknown = {token_indices[index] for index in sentence.missing}
    gaps = set(range(len(tokens))) - set(token_indices)
    unknown |= {gap for gap in gaps if {gap - 1, gap + 1} <= unknown}
    return Sentence(tuple(tokens), spans, tuple(sorted(unknown)), sentence.line, tuple(spaces))


def is_tag(text: str) -> bool:
    """Return whether a string has the form of a tag."""
    return text in ("O", MISSING_TAG) or _TAG.fullmatch(text) is not None


def split_line(line: str) -> list[str]:
    """Return the columns of a line. A token may itself be a space."""
    if "\t" in line:
        # A column that contains only spaces is a token.
        return [column.strip(" ") or column for column in line.rstrip("\t ").split("\t")]
    columns = _SPACES.split(line.rstrip(" "))
    if line.startswith("  ") and len(columns) == 2:
        return [" ", columns[1]]  # The token is a space.
    return columns


def has_positions(tokens: Iterable[str]) -> bool:
    """Return whether nearly all tokens end in a position in their word: numbers that begin at 0 and increase by one."""
    previous, regular, total = -1, 0, 0
    for token in tokens:
        match = _POSITIONED.fullmatch(token)
        position = int(match[2]) if match else previous
        regular += match is not None and position in (0, previous + 1)
        total += 1
        previous = position
    return total > 0 and regular >= _MIN_REGULAR * total


def has_indices(lines: Iterable[tuple[int, str]]) -> bool:
    """Return whether the first of at least three columns numbers the tokens of each sentence, from 0 or 1."""
    longest, regular, total = 0, 0, 0
    for _, block in read_blocks(lines):
        rows = [split_line(line) for _, line in block]
        while rows and rows[0][0].startswith("#"):
            del rows[0]
        begin = 0 if rows and rows[0][0] == "0" else 1
        regular += sum(len(row) > 2 and row[0] == str(index) for index, row in enumerate(rows, begin))
        total += len(rows)
        longest = max(longest, len(rows))
    return longest > 1 and regular >= _MIN_REGULAR * total


def _without_position(token: str, number: int) -> str:
    """Return a token without the position in its word: `技` for `技1`. Raises a RecordError if it has none."""
    match = _POSITIONED.fullmatch(token)
    if match is None:
        remedy = "Write each token as a character and its position (科0), or use the format 'columns'."
        raise RecordError(f"'{token[:60]}' does not end in its position in the word", remedy, line=number)
    return match[1]
