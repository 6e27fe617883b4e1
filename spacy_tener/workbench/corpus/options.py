"""Options of reading a corpus."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import RemedyError, check_choice
from ...inputs import check_encoding
from .columns import AUTO, find_scheme

COLUMN_FORMATS = ("columns", "weibo")
TEXT_FORMATS = JSONL, LABEL_STUDIO, CLUENER = "jsonl", "labelstudio", "cluener"
TOKENS = "tokens"
CORPUS_FORMATS = (*COLUMN_FORMATS, *TEXT_FORMATS, TOKENS)
OVERLAPS = ("error", "longest", "spans")


@dataclass(frozen=True)
class CorpusOptions:
    """Options of reading a corpus.

    format (str): One of `CORPUS_FORMATS`, or `auto` to detect it from the first lines.
    scheme (str): One of `SCHEMES` or `ALIASES`, or `auto` to detect it from the tags.
    overlap (str): How to read overlapping spans: one of `OVERLAPS`.
    texts (tuple[str, ...]): Names of annotated texts in Label Studio's tasks, in addition to those with entities.
    encoding (str): Encoding of the files.
    token_column, tag_column (int | None): Number of the column in `columns`, from 1, or from -1 for the last. By
        default tags are in the last; tokens are in the first, or in the second if the first numbers them.
    tag_names (tuple[str, ...]): Names of the numbered tags of `tokens`.
    """

    format: str = AUTO
    scheme: str = AUTO
    overlap: str = "error"
    texts: tuple[str, ...] = ()
    encoding: str = "utf-8"
    token_column: int | None = None
    tag_column: int | None = None
    tag_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("corpus format", self.format, (AUTO, *CORPUS_FORMATS))
        find_scheme(self.scheme)
        check_choice("way to read overlaps", self.overlap, OVERLAPS)
        if 0 in (self.token_column, self.tag_column):
            raise RemedyError("There is no column 0", "Columns count from 1, or from -1 for the last.")
        check_encoding(self.encoding)
