"""Corpora to spaCy's binary format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import spacy
from spacy.language import Language
from spacy.tokens import Doc, DocBin
from tqdm import tqdm

from ..files import write_file
from .docs import UNSPACED, group_sentences, sentences_to_doc, text_to_doc
from .inputs import Job, plan
from .reader import CorpusReader, ReadOptions
from .records import AnnotatedText, CorpusError, Event, Notes, Sentence

_ATTRS = ["ENT_IOB", "ENT_TYPE", "SENT_START"]
SPACES = ("auto", "yes", "no")


@dataclass(frozen=True)
class DocOptions:
    """How to make Docs of a corpus.

    lang: The language. Its tokenizer makes the tokens of texts; tokens of a corpus in columns are kept as they are.
    n_sents: How many sentences a Doc holds (never of two documents), or 0 for whole documents. Texts stay whole.
    spaces: Whether there is a space after each token of a corpus in columns: `yes`, `no`, or `auto` for what the
        language does.
    """

    lang: str = "zh"
    n_sents: int = 1
    spaces: str = "auto"

    def __post_init__(self) -> None:
        if self.n_sents < 0:
            raise ValueError(f"n_sents is {self.n_sents}. Give a number of sentences, or 0 for whole documents.")
        if self.spaces not in SPACES:
            raise ValueError(f"spaces is '{self.spaces}'. Use one of: {', '.join(SPACES)}.")

    @property
    def has_spaces(self) -> bool:
        return self.spaces == "yes" or (self.spaces == "auto" and self.lang not in UNSPACED)


@dataclass
class Report:
    """What was read from the inputs of one job and written to its output, if there was anything to write."""

    source: str
    output: Path
    format: str = ""
    scheme: str | None = None
    documents: int = 0
    sentences: int = 0
    """Sentences, or texts of the JSON formats."""
    docs: int = 0
    tokens: int = 0
    missing: int = 0
    """Tokens without annotation."""
    labels: Counter[str] = field(default_factory=Counter)
    notes: Notes = field(default_factory=Notes)

    @property
    def entities(self) -> int:
        return self.labels.total()

    def finish(self, reader: CorpusReader, *, several: bool) -> None:
        """Take over what a reader knows after its last line."""
        self.format = _with_name(self.format, reader.format)
        self.scheme = _with_name(self.scheme or "", reader.scheme or "") or None
        self.notes.update(reader.notes, source=str(reader.path) if several else "")


def _with_name(names: str, name: str) -> str:
    return ", ".join(sorted({*names.split(", "), name} - {""}))


def convert(
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    reading: ReadOptions | None = None,
    making: DocOptions | None = None,
    glob: str | None = None,
    join: bool = False,
    progress: bool = False,
) -> list[Report]:
    """Convert files, directories and standard input (`-`) to `.spacy` files below `output`, one for each input.

    join: Write all inputs into the file `output`.

    A file that cannot be converted raises a `CorpusError`; outputs written before it stay.
    """
    reading, making = reading or ReadOptions(), making or DocOptions()
    jobs, _ = plan(inputs, output, glob=glob, join=join)
    return [convert_file(job, reading=reading, making=making, progress=progress) for job in jobs]


def convert_file(job: Job, *, reading: ReadOptions, making: DocOptions, progress: bool = False) -> Report:
    """Convert one file, or several that are joined. The output appears when it is whole, or not at all.

    Of a file with nothing but documents that are left out, there is no output."""
    report = Report(job.source, job.output)
    binary = DocBin(attrs=_ATTRS)
    docs = _docs(job, reading, making, report)
    for doc in tqdm(docs, desc=job.source, unit=" docs", leave=False, disable=None if progress else True):
        binary.add(doc)
        report.docs += 1
        report.tokens += len(doc)
        report.missing += int((doc.to_array("ENT_IOB") == 0).sum())
        report.labels.update(entity.label_ for entity in doc.ents)
    if report.docs:
        write_file(job.output, lambda file: file.write(binary.to_bytes()))
    elif not report.notes.counts[Event.NEW_TESTAMENT]:
        raise CorpusError(job.source, "there is no annotated sentence or text in it", "Is it the right file?")
    return report


def _docs(job: Job, reading: ReadOptions, making: DocOptions, report: Report) -> Iterator[Doc]:
    nlp = _blank(making.lang)
    for source in job.sources:
        reader = CorpusReader(source, reading)
        yield from _docs_of_file(reader, nlp, making, report)
        report.finish(reader, several=len(job.sources) > 1)


def _docs_of_file(reader: CorpusReader, nlp: Language, making: DocOptions, report: Report) -> Iterator[Doc]:
    for group in group_sentences(_counted(reader, report), making.n_sents):
        if isinstance(group, AnnotatedText):
            yield text_to_doc(nlp.tokenizer, group, note=reader.note)
        else:
            yield sentences_to_doc(nlp.vocab, group, spaces=making.has_spaces, note=reader.note)


def _counted(reader: CorpusReader, report: Report) -> Iterator[Sentence | AnnotatedText]:
    for item in reader:
        report.sentences += 1
        report.documents += isinstance(item, AnnotatedText) or item.starts_document
        yield item


def _blank(lang: str) -> Language:
    try:
        return spacy.blank(lang)
    except ImportError as error:
        raise ValueError(f"spaCy has no tokenizer for the language '{lang}' here: {error}") from error
