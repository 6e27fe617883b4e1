"""Conversion of corpora to spaCy's binary format: planning of inputs and outputs, and the conversion itself.

An output is named after its input: `train.char.bmes` becomes `train.spacy`. Only endings that name a format are
removed, so that `x.train` and `x.dev` get different names (`x.train.spacy`), together or one by one. An output that
ends in `.spacy` is the file for one input. Files in a directory keep their relative paths.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath

from spacy.pipeline.spancat import DEFAULT_SPANS_KEY
from spacy.tokens import Doc, DocBin
from tqdm import tqdm

from ..errors import InputError, RemedyError
from ..files import write_bytes
from ..inputs import COMPRESSED, STDIN, find_files, suffix_of
from .annotation import AnnotatedText, CorpusError, Event, Notes
from .docs import INCORRECT, sentence_to_doc, text_to_doc
from .reader import CorpusOptions, CorpusReader
from .tokenizers import blank_pipeline

OUTPUT_SUFFIX = ".spacy"
_FORMAT_SUFFIXES = frozenset(
    {".txt", ".tsv", ".conll", ".conllu", ".ner", ".bio", ".iob", ".iob1", ".iob2"}
    | {".bioes", ".bmes", ".bilou", ".char", ".word", ".jsonl", ".json"}
)
# Endings of corpus files that name the part of the corpus.
_PART_SUFFIXES = frozenset({".train", ".dev", ".valid", ".test", ".testa", ".testb", ".annotated"})
_LANGUAGE_SAMPLE = 200  # sentences or texts
# Written without spaces between words.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue"})
_ATTRS = ["ENT_IOB", "ENT_TYPE", "SENT_START"]


@dataclass(frozen=True)
class ConversionJob:
    """An input, a file or `-`, and its output file. found: Whether the input was found in a directory."""

    source: str
    output: Path
    found: bool = False


def plan_jobs(inputs: Sequence[str | Path], output: str | Path) -> tuple[list[ConversionJob], list[str]]:
    """Return the jobs for files, directories and `-`, and the files in the directories that are left out."""
    output = Path(output)
    for path in map(Path, inputs):
        if path.suffix == OUTPUT_SUFFIX and not path.is_dir():
            remedy = "Name the corpus in another format, or use it as is."
            raise InputError(str(path), "is a .spacy file already", remedy)
    files, left_out = find_files(
        inputs,
        lambda path: suffix_of(path) in _FORMAT_SUFFIXES | _PART_SUFFIXES,
        "corpus",
        "Name its corpus files.",
    )
    if output.suffix == OUTPUT_SUFFIX and not output.is_dir():
        if len(files) != 1:
            remedy = "Name a directory as the output: `spacy train` reads one as a corpus, too."
            raise InputError(str(output), f"one output for {len(files)} inputs", remedy)
        return [ConversionJob(files[0].address, output, files[0].found)], left_out
    if output.exists() and not output.is_dir():
        raise InputError(str(output), "not a directory", "Name a directory, or a file that ends in .spacy.")
    jobs: dict[Path, ConversionJob] = {}
    for file in files:
        target = output / output_name(PurePath("stdin" if file.address == STDIN else file.name))
        if target in jobs:
            reason = f"both {jobs[target].source} and {file.address} would be written to {target}"
            raise InputError(file.address, reason, "Convert them one by one, with outputs named `NAME.spacy`.")
        jobs[target] = ConversionJob(file.address, target, file.found)
    return list(jobs.values()), left_out


def output_name(name: PurePath) -> PurePath:
    """Return the default name of an input's output."""
    while name.suffix in _FORMAT_SUFFIXES or name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.with_name(name.name + OUTPUT_SUFFIX)


@dataclass
class ConversionReport:
    """Counts of what a job read and wrote.

    missing (int): Tokens without annotation.
    incorrect (int): Spans known not to be entities of their label.
    overlapping (int): Entities in `doc.spans` that are not in `doc.ents`, for a longer one there.
    """

    source: str
    output: Path
    lang: str = ""
    format: str = ""
    scheme: str | None = None
    docs: int = 0
    tokens: int = 0
    missing: int = 0
    incorrect: int = 0
    overlapping: int = 0
    labels: Counter[str] = field(default_factory=Counter)
    notes: Notes = field(default_factory=Notes)

    @property
    def entities(self) -> int:
        return self.labels.total()


def convert_jobs(
    jobs: Sequence[ConversionJob], *, reading: CorpusOptions, lang: str | None = None
) -> Iterator[ConversionReport]:
    """Convert job by job, each sentence or text to a Doc. Outputs are written atomically.

    A file that cannot be converted raises an `InputError`; outputs of earlier jobs stay. A file gets no output if all
    its records are left out, or if it was found in a directory and is not a corpus.

    lang (str | None): Language, or None to detect Chinese and English by their letters. Its tokenizer splits texts; the
        tokens of a corpus in columns are kept.
    """
    written, stray = 0, ""
    for job in jobs:
        report = _convert(job, reading, lang)
        written += report.docs
        stray = next(iter(report.notes.examples.get(Event.STRAY, ())), stray)
        yield report
    if stray and not written:
        raise CorpusError(", ".join(job.source for job in jobs[:3]), "there is no corpus", f"So it was read: {stray}")


def _convert(job: ConversionJob, reading: CorpusOptions, lang: str | None) -> ConversionReport:
    report = ConversionReport(job.source, job.output)
    binary = DocBin(attrs=_ATTRS)
    docs = _docs(job, reading, lang, report)
    for doc in tqdm(docs, desc=job.source, unit=" docs", leave=False, disable=None):
        binary.add(doc)
        report.docs += 1
        report.tokens += len(doc)
        report.missing += int((doc.to_array("ENT_IOB") == 0).sum())
        report.incorrect += len(doc.spans.get(INCORRECT, ()))
        entities = doc.spans.get(DEFAULT_SPANS_KEY, doc.ents)
        report.overlapping += len(entities) - len(doc.ents)
        report.labels.update(entity.label_ for entity in entities)
    if report.docs:
        write_bytes(job.output, binary.to_bytes())
    elif left_out := report.notes.counts[Event.LEFT_OUT]:
        raise CorpusError(job.source, f"no record is annotated. {Event.LEFT_OUT.value}: {left_out:,}", "Annotate some.")
    elif Event.STRAY not in report.notes.counts:
        raise CorpusError(job.source, "there is no annotated sentence or text in it", "Is it the right file?")
    return report


def _docs(job: ConversionJob, reading: CorpusOptions, lang: str | None, report: ConversionReport) -> Iterator[Doc]:
    overlapping = reading.overlap == "spans"
    reader = CorpusReader(job.source, reading)
    items = iter(reader)
    try:
        head = list(islice(items, _LANGUAGE_SAMPLE))
        if head:
            report.lang = lang or detect_language(item.text for item in head)
            nlp, spaces = blank_pipeline(report.lang), report.lang not in UNSPACED
            for item in chain(head, items):
                if isinstance(item, AnnotatedText):
                    yield text_to_doc(nlp.tokenizer, item, note=reader.note, overlapping=overlapping)
                else:
                    yield sentence_to_doc(nlp.vocab, item, spaces=spaces, note=reader.note, overlapping=overlapping)
        elif job.found and not reader.notes.counts:
            report.notes.add(Event.STRAY, f"{job.source}: there is no annotated sentence or text in it")
    except CorpusError as error:
        if reader.items or not job.found:
            raise
        report.notes.add(Event.STRAY, f"{error.place}: {error.reason}")
    else:
        report.format, report.scheme = reader.format, reader.scheme
        report.notes.update(reader.notes)


def detect_language(texts: Iterable[str]) -> str:
    """Return `zh` or `en`; refuses texts of other scripts, and texts without letters."""
    letters = [char for text in texts for char in text if char.isalpha()]
    han = sum("\u3400" <= char <= "\u9fff" or char >= "\U00020000" for char in letters)
    if not letters or han + sum(map(str.isascii, letters)) < 0.98 * len(letters):
        raise RemedyError("The language cannot be detected by the letters", "Name it, as in `--lang de`.")
    return "zh" if han >= 0.05 * len(letters) else "en"
