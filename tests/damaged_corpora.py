"""Convert damaged corpora, and check the result."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import corpus_formats
import spacy
from conversion import convert
from corpus_formats import COLUMNS, JSON, Counted, Sentence
from damage import DAMAGES, limited_resources
from spacy.tokens import DocBin

from spacy_tener.corpora.annotation import Event
from spacy_tener.corpora.convert import ConversionReport
from spacy_tener.corpora.reader import CorpusOptions
from spacy_tener.errors import UserError

TEXTS: dict[str, Callable[[list[Sentence]], str]] = {**COLUMNS, **JSON}
FORMATS = {"conll2003": "columns", "numbered": "columns", "doccano": "jsonl", "prodigy": "jsonl", "spacy2": "jsonl"}
FORMATS |= {"label_studio": "labelstudio", "hugging_face": "tokens"}

VOCAB = spacy.blank("zh").vocab

FRAGMENTS = [
    *(b'"\\ud800"', b"\\ud83d", b"\\u0000", b"null", b"true", b"1e999", b"NaN", b"9" * 5000, b"-1", b"[" * 2000, b"{"),
    *(b"[", b"]", b"}", b",", b":", b'"', b"\xff", b"\xef\xbb\xbf", b"\x00", b"\t", b"\r", b"\n", b"\n\n", b" ", b"O"),
    *(
        "\u3000".encode(),
        "\u2028".encode(),
        b"\x0b",
        b"-DOCSTART- O\n",
        b"# B-\n",
        b"B-X",
        b"S-LOC",
        b"-",
    ),
    *(b'"text": 1,', b'"label": [], ', b"0 1;3 4", b"T1\t"),
]
# Events that remove entities or records, and that are reported.
REPORTED = [Event.BLANK, Event.DUPLICATE, Event.MISALIGNED]
LEFT_OUT = [Event.LEFT_OUT, Event.SEVERAL, Event.OVERLAP]


def insert_fragment(data: bytes, rng: random.Random) -> bytes:
    position = rng.randrange(len(data) + 1)
    return data[:position] + rng.choice(FRAGMENTS) + data[position + rng.choice((0, 0, 1, 5)) :]


def damage_lines(data: bytes, rng: random.Random) -> bytes:
    """Delete a line, duplicate it, swap it with the next line, or swap its halves."""
    lines = data.split(b"\n")
    position = rng.randrange(len(lines))
    line = lines[position]
    half = len(line) // 2
    instead = rng.choice(
        ([], [line, line], [*lines[position + 1 : position + 2], line], [line[half:] + line[:half]], [b""])
    )
    return b"\n".join([*lines[:position], *instead, *lines[position + len(instead or [line]) :]])


DAMAGE_FUNCTIONS = [*DAMAGES, insert_fragment, damage_lines]


def apply_damage(data: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        data = rng.choice(DAMAGE_FUNCTIONS)(data, rng) if data else data
    return data


def convert_damaged(path: Path, out: Path, options: CorpusOptions) -> ConversionReport | UserError:
    """Convert a file, and return the report or the error. Checks that the output agrees with the report."""
    try:
        with limited_resources():
            (report,) = convert([path], out, options=options, lang="zh")
    except UserError as error:
        message = str(error)
        message.encode("utf8")  # raises an error if the message cannot be printed
        assert path.stem in message
        assert len(message) < 4000, message[:4000]
        assert not out.exists()
        return error
    if report.docs:
        docs = list(DocBin().from_disk(out).get_docs(VOCAB))
        assert len(docs) == report.docs
        assert sum(len(doc.ents) for doc in docs) == report.entities
        assert sum(map(len, docs)) == report.tokens
        out.unlink()
    return report


def check_counts(report: ConversionReport, expected: Counted) -> None:
    counts = report.notes.counts
    if any(counts[event] for event in LEFT_OUT):
        return
    assert report.docs == expected.sentences
    assert report.entities + sum(counts[event] for event in REPORTED) == expected.entities
    if expected.tokens:
        assert report.tokens == expected.tokens
        assert report.missing == expected.missing


def count(name: str, text: str, report: ConversionReport) -> Counted:
    """Count the entities with a simple parser for the format that was detected."""
    if report.format in ("columns", "weibo"):
        return corpus_formats.count_columns(text, report.notes.counts[Event.COMMENT])
    return corpus_formats.count_json(text)


def check(folder: Path, name: str, data: bytes, options: CorpusOptions) -> ConversionReport | UserError:
    path = folder / f"{name}.txt"
    path.write_bytes(data)
    result = convert_damaged(path, folder / "out.spacy", options)
    if isinstance(result, ConversionReport):
        check_counts(result, count(name, data.decode(options.encoding), result))
    else:
        is_empty = "contains no annotated sentence" in str(result)
        assert is_empty or re.search(rf"{re.escape(path.name)}:\d+: ", str(result)), str(result)
    return result
