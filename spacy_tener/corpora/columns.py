"""Parse corpora with one token and its tag on each line: CoNLL-2003, CoNLL-U, Weibo NER and similar formats.

    # text = Hugo Boss AG        the original text, as in CoNLL-U (optional)
    Hugo  B-PER                  token in the first column, tag in the last
    Boss  I-PER
    AG    O
                                 a blank line ends the sentence

Lines and columns:

* A line that contains a tab is split at tabs. Other lines are split at spaces.
* If the first column contains token numbers, the second column contains the tokens. A multiword token of CoNLL-U, such
  as `1-2 im`, replaces its words.
* A blank line or a line `-DOCSTART-` ends a sentence.
* A line that begins with `#` is a comment if it precedes the tokens of a sentence and doesn't look like a token with a
  tag.
* A comment `# text = ` contains the original text of the sentence. It specifies the whitespace between the tokens.
* In Weibo NER, each character is followed by its position in the word (`科0`, `技1`). The position is removed.

A tag is `O`, or a prefix with a label, such as `B-PER` or `B_PER`. The tag `-` means missing annotation. Tags are
interpreted as in the script `conlleval`, independently of the tag scheme:

* `B`, `S` and `U` begin an entity.
* `I`, `M`, `E` and `L` continue an entity with the same label. If there is no such entity, they begin a new entity.
* `E`, `L`, `S` and `U` end an entity.

The tag scheme is only used to count repairs: tags that are not well-formed in the scheme.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..errors import UserError
from .annotation import EntitySpan, Event, Notes, RecordError, Sentence, excerpt

AUTO = "auto"
NO_ENTITY_TAG, MISSING_TAG = "O", "-"
# Prefixes of each tag scheme: for the first, inner and last token of an entity, and for single-token entities.
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
# All prefixes of each scheme. IOB1 also contains B, for an entity directly after an entity with the same label.
_ALPHABETS = {name: frozenset(letters) | {"B"} for name, letters in SCHEMES.items()}

# CoNLL-U's numbers of multiword tokens (`1-2`) and of empty nodes (`8.1`).
_WORD_RANGE, _EMPTY_NODE = re.compile(r"(\d+)-(\d+)"), re.compile(r"\d+\.\d+")

DOCUMENT_START = "-DOCSTART-"
_TEXT_COMMENT = "# text = "

# Matches a character and its position in the word, as in `科0`. The first group is lazy, so that digits belong to the
# position where possible: `310` is the character 3 at position 10.
_POSITIONED = re.compile(r"(.+?)([0-9]{1,4})", re.DOTALL)
_SPACES = re.compile(" +")
# A column contains token numbers or positions if at least this fraction of its values are consecutive.
_MIN_REGULAR = 0.95


# Tag parsing.


def find_scheme(name: str) -> str:
    """Return a tag scheme's canonical name. Names and aliases are not case-sensitive, and `auto` is a valid name."""
    scheme = AUTO if name.lower() == AUTO else ALIASES.get(name.upper(), name.upper())
    if scheme not in (AUTO, *SCHEMES):
        raise UserError(f"Unknown tag scheme '{name}'", f"Use one of: {', '.join((AUTO, *SCHEMES, *ALIASES))}.")
    return scheme


class TagReader:
    """Convert a file's tags to entities, and detect the tag scheme.

    scheme (str): Tag scheme name, or `auto` to detect the scheme.
    """

    def __init__(self, scheme: str = AUTO) -> None:
        scheme = find_scheme(scheme)
        self._candidates = list(SCHEMES) if scheme == AUTO else [scheme]
        self._prefixes: set[str] = set()
        self._parsed: dict[str, tuple[str, str]] = {"O": ("O", ""), MISSING_TAG: (MISSING_TAG, "")}
        # A tag can be well-formed in one scheme and not in another. The detected scheme may change until the end of the
        # file. Therefore, count repairs for three groups: IOB1, IOB2, and the schemes with end tags.
        self._repairs = {"IOB1": Notes(), "IOB2": Notes(), "marked": Notes()}

    @property
    def scheme(self) -> str | None:
        """Return the tag scheme that matches the tags read so far, or None if there were no entity tags.

        The scheme is determined by the tag prefixes. IOB1 and IOB2 have the same prefixes, so the scheme with fewer
        repairs is returned.
        """
        if not self._prefixes and len(self._candidates) > 1:
            return None
        if self._candidates[:2] == ["IOB2", "IOB1"]:
            return min(self._candidates[:2], key=lambda name: self._repairs[name].counts.total())
        return self._candidates[0]

    @property
    def repairs(self) -> Notes:
        """Return the log of tags that are not well-formed in the detected scheme."""
        return self._repairs.get(self.scheme or "", self._repairs["marked"])

    def read(
        self, tags: Sequence[str], *, line: int = 1, step: int = 1
    ) -> tuple[tuple[EntitySpan, ...], tuple[int, ...]]:
        """Convert a sentence's tags to entities.

        tags (Sequence[str]): Tag of each token.
        line (int): Line number of the first tag.
        step (int): Number of lines per tag: 1 in column formats, and 0 if all tags are on the same line.
        RETURNS (tuple[tuple[EntitySpan, ...], tuple[int, ...]]): Entities, and indices of tokens with missing
            annotation.
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
        """Count a repair for each scheme in which an entity's first tag is not well-formed.

        same_type (bool): Whether the previous token belongs to an entity with the same label.
        """
        after = f"after {tags[index - 1]}" if index else "at the start of a sentence"
        if letter in _CONTINUING:
            for scheme_group in ("IOB2", "marked"):
                self._note(scheme_group, line, f"{tags[index]} {after} begins an entity")
        elif not same_type:
            self._note("IOB1", line, f"{tags[index]} {after} where I would do")

    def _note_unfinished(self, tag: str, line: int) -> None:
        """Count a repair for an entity without an end tag. IOB1 and IOB2 have no end tags."""
        self._note("marked", line, f"{tag} is not followed by the entity's end")

    def _note(self, scheme_group: str, line: int, detail: str) -> None:
        self._repairs[scheme_group].add(Event.REPAIRED, detail, line)

    def _parse(self, tag: str, line: int) -> tuple[str, str]:
        match = _TAG.fullmatch(tag)
        if match is None:
            fix = (
                "A tag is O, a prefix with a label, such as B-PER, or - for missing annotation. If the tags are in "
                "another column than the last, set --tag-column."
            )
            raise RecordError(f"'{tag[:60]}' is not a tag", fix, line=line)
        letter, label = match.groups()
        self._exclude_schemes(letter, tag, line)
        self._parsed[tag] = (letter, label)
        return letter, label

    def _exclude_schemes(self, letter: str, tag: str, line: int) -> None:
        """Exclude all candidate tag schemes that don't contain a given prefix.

        Raises a RecordError if no candidate is left.
        """
        matching = [name for name in self._candidates if letter in _ALPHABETS[name]]
        if not matching:
            schemes = " or ".join(self._candidates)
            reason = f"tag '{tag[:60]}' does not belong to the scheme {schemes}"
            if self._prefixes:
                reason += f", but the tags before it ({', '.join(sorted(self._prefixes))}) do"
            fix = f"Set --scheme to the scheme of the file ({', '.join(SCHEMES)}), or convert all tags to one scheme."
            raise RecordError(reason, fix, line=line)
        self._candidates = matching
        self._prefixes.add(letter)


# Line and column parsing.


# A sentence's lines, with their line numbers.
Block = list[tuple[int, str]]


def read_blocks(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Block]]:
    """Group a file's lines into sentences.

    lines (Iterable[tuple[int, str]]): Line numbers and lines.
    YIELDS (tuple[int, Block]): Number of the first line, and the sentence's lines.
    """
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
    """Parser for the sentences in a file with columns.

    tags (TagReader): Converts tags to entities.
    notes (Notes): Log of corrections.
    token (int): Index of the token column. Negative indices count from the last column.
    tag (int): Index of the tag column. Negative indices count from the last column.
    positions (bool): Whether each token ends in its position in the word, as in Weibo NER. The position is removed.
    width (int): Number of columns. 0 before the first sentence is parsed.
    """

    tags: TagReader
    notes: Notes
    token: int
    tag: int
    positions: bool
    width: int = 0

    def __call__(self, block: Block, line: int) -> list[Sentence]:
        """Parse a sentence's lines.

        block (Block): Lines with their line numbers.
        line (int): Number of the first line.
        RETURNS (list[Sentence]): A list with the sentence. Empty if all lines are comments.
        """
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
        if self.token != 0:
            rows = _merge_word_ranges(rows, self.token, self.tag)
        first = rows[0][0]
        tokens = [columns[self.token] for _, columns in rows]
        if self.positions:
            tokens = [_without_position(token, number) for token, (number, _) in zip(tokens, rows, strict=True)]
        spans, missing = self.tags.read([columns[self.tag] for _, columns in rows], line=first)
        sentence = Sentence(tuple(tokens), spans, missing, first)
        return [sentence if written is None else align_with_text(sentence, written[1], written[0])]

    def _is_comment(self, columns: Sequence[str]) -> bool:
        """Return whether a line is a comment.

        A comment begins with `#`. A token can also begin with `#`, such as a hashtag. Such a line has the usual number
        of columns and ends in a tag.
        """
        differs = len(columns) < 2 or len(columns) != (self.width or len(columns)) or not is_tag(columns[-1])
        return columns[0].startswith("#") and differs

    def _check(self, columns: Sequence[str], number: int) -> None:
        """Raise a RecordError if a line has the wrong number of columns or an empty token."""
        if len(columns) < 2:
            fix = "Each line needs a token and its tag, separated by a space or a tab."
            if "," in columns[0]:
                fix += " If the file contains comma-separated values (CSV), convert it to tab-separated values (TSV)."
            raise RecordError("the line has one column", fix, line=number)
        if len(columns) != self.width:
            reason = f"the line has {len(columns)} columns, but the lines before it have {self.width}"
            raise RecordError(reason, "Use the same number of columns in every line.", line=number)
        for name, column in (("token", self.token), ("tag", self.tag)):
            if not -self.width <= column < self.width:
                reason = f"the {name} column doesn't exist, because the line has only {self.width} columns"
                raise RecordError(reason, f"Set --{name}-column to an existing column.", line=number)
        if not columns[self.token]:
            which = "the token in the first column" if self.token == 0 else "the token"
            fix = "Add the token or remove the line."
            raise RecordError(f"{which} is empty", fix, line=number)


def align_with_text(sentence: Sentence, text: str, line: int) -> Sentence:
    """Add the whitespace between the tokens to a sentence, based on the original text.

    A single space is stored in `Sentence.spaces`. Additional whitespace becomes a token, as in spaCy's tokenizers.

    sentence (Sentence): Sentence without whitespace.
    text (str): The sentence's original text.
    line (int): Line number of the text, for error messages.
    """
    tokens: list[str] = []
    spaces: list[bool] = []
    token_indices: list[int] = []
    end = 0
    for token in (*sentence.tokens, ""):
        start = text.find(token, end) if token else len(text)
        gap = text[end:start]
        if start < 0 or gap.strip():
            reason = (
                f"the text continues with {excerpt(text[end:].lstrip()[:20])}, but the next token is {excerpt(token)}"
            )
            raise RecordError(reason, "Correct the line `# text = `, or remove it.", line=line)
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
    # A whitespace token between two tokens with missing annotation also gets missing annotation, since all three may
    # belong to the same entity.
    unknown = {token_indices[index] for index in sentence.missing}
    gaps = set(range(len(tokens))) - set(token_indices)
    unknown |= {gap for gap in gaps if {gap - 1, gap + 1} <= unknown}
    return Sentence(tuple(tokens), spans, tuple(sorted(unknown)), sentence.line, tuple(spaces))


def is_tag(text: str) -> bool:
    """Return whether a string is a valid tag, such as `B-PER` or `O`."""
    return text in ("O", MISSING_TAG) or _TAG.fullmatch(text) is not None


def split_line(line: str) -> list[str]:
    """Split a line into columns at tabs, or at spaces if the line contains no tab."""
    if "\t" in line:
        # If a column contains only spaces, keep them, since the token is whitespace.
        return [column.strip(" ") or column for column in line.rstrip("\t ").split("\t")]
    columns = _SPACES.split(line.rstrip(" "))
    if line.startswith("  ") and len(columns) == 2:
        # The token is a space. It is followed by the separator and the tag.
        return [" ", columns[1]]
    return columns


def has_positions(tokens: Iterable[str]) -> bool:
    """Return whether tokens end in their position in the word, as in Weibo NER (`科0`, `技1`).

    At least 95 % of the positions must be 0 or the previous position plus 1.
    """
    previous, regular, total = -1, 0, 0
    for token in tokens:
        match = _POSITIONED.fullmatch(token)
        position = int(match[2]) if match else previous
        regular += match is not None and position in (0, previous + 1)
        total += 1
        previous = position
    return total > 0 and regular >= _MIN_REGULAR * total


def has_indices(lines: Iterable[tuple[int, str]]) -> bool:
    """Return whether the first column contains token numbers, which begin at 0 or 1 in each sentence.

    At least 95 % of the lines must have the expected number and at least three columns.
    """
    longest, regular, total = 0, 0, 0
    for _, block in read_blocks(lines):
        rows = [split_line(line) for _, line in block]
        while rows and rows[0][0].startswith("#"):
            del rows[0]
        begin = 0 if rows and rows[0][0] == "0" else 1
        rows = [row for row in rows if not (_WORD_RANGE.fullmatch(row[0]) or _EMPTY_NODE.fullmatch(row[0]))]
        regular += sum(len(row) > 2 and row[0] == str(index) for index, row in enumerate(rows, begin))
        total += len(rows)
        longest = max(longest, len(rows))
    return longest > 1 and regular >= _MIN_REGULAR * total


TokenRows = list[tuple[int, list[str]]]


def _merge_word_ranges(rows: TokenRows, token: int, tag: int) -> TokenRows:
    """Replace the words of each multiword token by the token, as it is written in the text.

    In CoNLL-U, the line `1-2 im` is followed by its words `1 in` and `2 dem`. The merged token gets the tag of its
    first word that is part of an entity. Empty nodes such as `8.1`, which do not occur in the text, are removed.

    rows (TokenRows): The columns of each line, with line numbers. The first column contains the token numbers.
    token (int): Index of the token column.
    tag (int): Index of the tag column.
    """
    merged: TokenRows = []
    last_in_range = 0
    for number, columns in rows:
        word_range = _WORD_RANGE.fullmatch(columns[0])
        if word_range:
            last_in_range = int(word_range[2])
            columns = list(columns)
            columns[tag] = NO_ENTITY_TAG
            merged.append((number, columns))
        elif last_in_range and columns[0].isdigit() and int(columns[0]) <= last_in_range:
            if merged[-1][1][tag] == NO_ENTITY_TAG:
                merged[-1][1][tag] = columns[tag]
        elif not _EMPTY_NODE.fullmatch(columns[0]):
            last_in_range = 0
            merged.append((number, columns))
    return merged


def _without_position(token: str, number: int) -> str:
    """Remove the position in the word from a token: `技` for `技1`. Raises a RecordError if there is no position."""
    match = _POSITIONED.fullmatch(token)
    if match is None:
        fix = "Write each token as a character and its position, such as 科0, or use the format 'columns'."
        raise RecordError(f"'{token[:60]}' does not end with its position in the word", fix, line=number)
    return match[1]
