"""Corpora to spaCy's binary format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path

from spacy.language import Language
from spacy.tokens import Doc, DocBin
from tqdm import tqdm

from ...errors import RemedyError, check_choice
from ...files import write_file
from ..languages import UNSPACED, blank_pipeline, detect_language
from .docs import group_sentences, sentences_to_doc, text_to_doc
from .inputs import Job
from .reader import CorpusReader, Item, ReadOptions
from .records import AnnotatedText, CorpusError, Event, Notes

_LANGUAGE_SAMPLE = 200
_ATTRS = ["ENT_IOB", "ENT_TYPE", "SENT_START"]
SPACES = ("auto", "yes", "no")


@dataclass(frozen=True)
class DocOptions:
    """How to make Docs of a corpus.

    lang: The language, or None to tell Chinese and English by their letters. Its tokenizer makes the tokens of texts;
        tokens of a corpus in columns are kept as they are.
    n_sents: How many sentences a Doc holds (never of two documents), or 0 for whole documents. Texts stay whole.
    spaces: Whether there is a space after each token of a corpus in columns: `yes`, `no`, or `auto` for what the
        language does.
    """

    lang: str | None = None
    n_sents: int = 1
    spaces: str = "auto"

    def __post_init__(self) -> None:
        if self.n_sents < 0:
            raise RemedyError(f"n_sents is {self.n_sents}", "Give a number of sentences, or 0 for whole documents.")
        check_choice("way to set spaces", self.spaces, SPACES)

    def has_spaces(self, lang: str) -> bool:
        return self.spaces == "yes" or (self.spaces == "auto" and lang not in UNSPACED)


@dataclass
class ConversionReport:
    """What was read from the inputs of one job and written to its output, if there was anything to write."""

    source: str
    output: Path
    lang: str = ""
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


def convert_jobs(
    jobs: Sequence[Job], *, reading: ReadOptions, making: DocOptions, progress: bool = False
) -> Iterator[ConversionReport]:
    """Convert one job after the other. An output appears when it is whole, or not at all. A file that cannot be
    converted raises an `InputError`; outputs written before it stay.

    Of a file with nothing but documents that are left out, there is no output; nor of one that a directory has beside
    its corpora."""
    written, stray = 0, ""
    for job in jobs:
        report = _convert(job, reading, making, progress)
        written += report.docs
        stray = next(iter(report.notes.examples.get(Event.STRAY, ())), stray)
        yield report
    if stray and not written:
        raise CorpusError(", ".join(job.source for job in jobs[:3]), "there is no corpus", f"So it was read: {stray}")


def _convert(job: Job, reading: ReadOptions, making: DocOptions, progress: bool) -> ConversionReport:
    report = ConversionReport(job.source, job.output)
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
    elif not report.notes.counts.keys() & {Event.NEW_TESTAMENT, Event.STRAY}:
        raise CorpusError(job.source, "there is no annotated sentence or text in it", "Is it the right file?")
    return report


def _docs(job: Job, reading: ReadOptions, making: DocOptions, report: ConversionReport) -> Iterator[Doc]:
    report.lang = making.lang or ""
    nlp: Language | None = blank_pipeline(report.lang) if report.lang else None
    for source in job.sources:
        reader = CorpusReader(source, reading)
        items = _counted(reader, report)
        try:
            head = list(islice(items, _LANGUAGE_SAMPLE))
            if head:
                report.lang = report.lang or detect_language(map(_text, head))
                nlp = nlp or blank_pipeline(report.lang)
                spaces = making.has_spaces(report.lang)
                yield from _make_docs(chain(head, items), nlp, reader, n_sents=making.n_sents, spaces=spaces)
            elif source in job.found and not reader.notes.counts:
                report.notes.add(Event.STRAY, f"{source}: there is no annotated sentence or text in it")
        except CorpusError as error:
            if reader.items or source not in job.found:
                raise
            report.notes.add(Event.STRAY, f"{error.place}: {error.reason}")
        else:
            report.finish(reader, several=len(job.sources) > 1)


def _make_docs(
    items: Iterable[Item], nlp: Language, reader: CorpusReader, *, n_sents: int, spaces: bool
) -> Iterator[Doc]:
    for group in group_sentences(items, n_sents):
        if isinstance(group, AnnotatedText):
            yield text_to_doc(nlp.tokenizer, group, note=reader.note)
        else:
            yield sentences_to_doc(nlp.vocab, group, spaces=spaces, note=reader.note)


def _counted(reader: CorpusReader, report: ConversionReport) -> Iterator[Item]:
    for item in reader:
        report.sentences += 1
        report.documents += isinstance(item, AnnotatedText) or item.starts_document
        yield item


def _text(item: Item) -> str:
    return item.text if isinstance(item, AnnotatedText) else "".join(item.tokens)
