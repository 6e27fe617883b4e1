"""Convert annotated corpora to `.spacy` files, for the command `convert`.

`plan_jobs` determines the output path for each input file, and `convert_jobs` converts the files. Known format suffixes
are replaced with `.spacy`: `train.char.bmes` becomes `train.spacy`. Other suffixes are kept: `x.train` and `x.dev`
become `x.train.spacy` and `x.dev.spacy`. Files in subdirectories keep their relative paths. For a single input, you can
also pass the output path.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath

from spacy.pipeline.spancat import DEFAULT_SPANS_KEY
from spacy.tokens import Doc, DocBin
from tqdm import tqdm

from ..errors import InputError, UserError
from ..files import write_bytes
from ..inputs import COMPRESSED, STDIN, find_files, suffix_of
from .annotation import AnnotatedText, CorpusError, Event, Notes, Sentence
from .docs import INCORRECT, sentence_to_doc, text_to_doc
from .reader import CorpusOptions, CorpusReader, Item
from .tokenizers import WORDS, blank_pipeline

OUTPUT_SUFFIX = ".spacy"
_FORMAT_SUFFIXES = frozenset(
    {".txt", ".tsv", ".conll", ".conllu", ".ner", ".bio", ".iob", ".iob1", ".iob2"}
    | {".bioes", ".bmes", ".bilou", ".char", ".word", ".jsonl", ".json"}
)
# Suffixes of training, development and test sets. Files with these suffixes are treated as corpora.
_PART_SUFFIXES = frozenset({".train", ".dev", ".valid", ".test", ".testa", ".testb", ".annotated"})
# Number of sentences or texts from which the language is detected.
_LANGUAGE_SAMPLE = 200
# The last letter of the Unicode block Latin Extended-B.
_LAST_LATIN_LETTER = "\u024f"
_WORD = re.compile(r"[^\W\d_]+")
# About a fifth of the words in English texts, and less than 5 % in other languages.
_ENGLISH_WORDS = frozenset(
    {"the", "and", "of", "to", "that", "with", "you", "this", "are", "from", "it", "be", "on", "was", "is", "for"}
)
# Languages without spaces between words.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "km", "my", "bo", "yue"})
_ATTRS = ["ENT_IOB", "ENT_TYPE", "SENT_START"]


@dataclass(frozen=True)
class ConversionJob:
    """Input and output path for converting one file.

    source (str): Input path, or `-` for standard input.
    output (Path): Output path.
    found (bool): True if the file was found in an input directory. False if the user specified the file path.
    """

    source: str
    output: Path
    found: bool = False


def plan_jobs(inputs: Sequence[str | Path], output: str | Path) -> tuple[list[ConversionJob], list[str]]:
    """Determine which files to convert, and the output path for each file.

    Raises an InputError if two inputs would have the same output path.

    inputs (Sequence[str | Path]): Files, directories, or `-` for standard input.
    output (str | Path): Directory, or the `.spacy` file to write if there is only one input.
    RETURNS (tuple[list[ConversionJob], list[str]]): The conversion jobs, and the files in directories that are not
        corpora.
    """
    output = Path(output)
    for path in map(Path, inputs):
        if path.suffix == OUTPUT_SUFFIX and not os.path.isdir(path):
            fix = "Use this file as it is, or pass a corpus in another format."
            raise InputError(str(path), "is a .spacy file already", fix)
    files, left_out = find_files(
        inputs,
        lambda path: suffix_of(path) in _FORMAT_SUFFIXES | _PART_SUFFIXES,
        "corpus",
        "Pass the paths of the corpus files.",
    )
    if output.suffix == OUTPUT_SUFFIX and not os.path.isdir(output):
        if len(files) != 1:
            fix = "Use a directory as the output. `spacy train` accepts a directory as a corpus."
            raise InputError(str(output), f"a single output file for {len(files)} input files", fix)
        return [ConversionJob(files[0].address, output, files[0].found)], left_out
    if os.path.exists(output) and not os.path.isdir(output):
        raise InputError(str(output), "not a directory", "Use a directory, or a path that ends in .spacy.")
    jobs: dict[Path, ConversionJob] = {}
    for file in files:
        target = output / output_name(PurePath("stdin" if file.address == STDIN else file.name))
        if target in jobs:
            reason = f"both {jobs[target].source} and {file.address} would be written to {target}"
            raise InputError(file.address, reason, "Convert each file separately, with `--output NAME.spacy`.")
        jobs[target] = ConversionJob(file.address, target, file.found)
    return list(jobs.values()), left_out


def output_name(name: PurePath) -> PurePath:
    """Return the output file name: the input's file name with the suffix `.spacy` instead of format suffixes."""
    while name.suffix in _FORMAT_SUFFIXES or name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.with_name(name.name + OUTPUT_SUFFIX)


@dataclass
class ConversionReport:
    """Counts and corrections from one conversion job.

    source (str): Input path.
    output (Path): Output path.
    lang (str): Language of the tokenizer.
    format (str): Input format.
    scheme (str | None): Tag scheme in the input. None if the format has no tags.
    docs (int): Number of Docs in the output.
    tokens (int): Number of tokens.
    missing (int): Number of tokens with missing annotation.
    incorrect (int): Number of negative examples in `doc.spans["incorrect_spans"]`.
    overlapping (int): Number of entities that are only in `doc.spans`, since they overlap a longer entity in
        `doc.ents`.
    labels (Counter[str]): Number of entities for each label.
    notes (Notes): Corrections and omissions.
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
        """Return the total number of entities."""
        return self.labels.total()


def convert_jobs(
    jobs: Sequence[ConversionJob], *, options: CorpusOptions, lang: str | None = None, tokens: str = WORDS
) -> Iterator[ConversionReport]:
    """Convert files to `.spacy` files, and yield a report for each file.

    Each output is written only when it is complete. An InputError is raised at the first file that cannot be converted.
    Outputs from previous jobs are kept. Files in directories are skipped if they are not corpora.

    jobs (Sequence[ConversionJob]): Files to convert.
    options (CorpusOptions): Format and options of the inputs.
    lang (str | None): Language of the tokenizer, for texts that are not tokenized. None to detect the language, see
        `detect_language`.
    tokens (str): Tokens of texts that are not tokenized, one of `TOKEN_TYPES`.
    """
    written, stray = 0, ""
    for job in jobs:
        report = _convert(job, options, lang, tokens)
        written += report.docs
        stray = next(iter(report.notes.examples.get(Event.NOT_A_CORPUS, ())), stray)
        yield report
    if stray and not written:
        raise CorpusError(
            ", ".join(job.source for job in jobs[:3]),
            "no corpus was found",
            f"Check the inputs and the format. {stray}",
        )


def _convert(job: ConversionJob, options: CorpusOptions, lang: str | None, tokens: str) -> ConversionReport:
    """Convert one file, and return its report."""
    report = ConversionReport(job.source, job.output)
    binary = DocBin(attrs=_ATTRS)
    docs = _make_docs(job, options, lang, tokens, report)
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
        raise CorpusError(
            job.source, f"no record is annotated. {Event.LEFT_OUT.value}: {left_out:,}", "Annotate at least one record."
        )
    elif Event.NOT_A_CORPUS not in report.notes.counts:
        raise CorpusError(job.source, "contains no annotated sentence or text", "Check the path and the format.")
    return report


def _make_docs(
    job: ConversionJob, options: CorpusOptions, lang: str | None, tokens: str, report: ConversionReport
) -> Iterator[Doc]:
    """Yield the Docs of one file, and add the language, format, scheme and corrections to its report."""
    overlapping = options.overlap == "spans"
    reader = CorpusReader(job.source, options)
    items = iter(reader)
    try:
        head = list(islice(items, _LANGUAGE_SAMPLE))
        if head:
            report.lang = lang or detect_language(map(_words_of, head))
            nlp, spaces = blank_pipeline(report.lang, tokens), report.lang not in UNSPACED
            for item in chain(head, items):
                if isinstance(item, AnnotatedText):
                    yield text_to_doc(nlp.tokenizer, item, note=reader.note, overlapping=overlapping)
                else:
                    yield sentence_to_doc(nlp.vocab, item, spaces=spaces, note=reader.note, overlapping=overlapping)
        elif job.found and not reader.notes.counts:
            report.notes.add(Event.NOT_A_CORPUS, f"{job.source}: there is no annotated sentence or text in it")
    except CorpusError as error:
        # A directory may contain files that are not corpora, such as a README. Report them instead of raising an error.
        if reader.items or not job.found:
            raise
        report.notes.add(Event.NOT_A_CORPUS, f"{error.place}: {error.reason}")
    else:
        report.format, report.scheme = reader.format, reader.scheme
        report.notes.update(reader.notes)


def _words_of(item: Item) -> str:
    """Return the text of a sentence or text, with spaces between the tokens of a sentence."""
    return " ".join(item.tokens) if isinstance(item, Sentence) else item.text


def detect_language(texts: Iterable[str]) -> str:
    """Detect Chinese (`zh`), English (`en`) or another language in Latin script (`xx`) by the letters and words of
    texts. Raises a UserError for other scripts.

    Chinese texts often contain many Latin letters. Therefore, texts with at least 5 % Han characters are Chinese. Texts
    in Latin script are English if at least 5 % of the words are frequent function words of English, or if there are
    fewer than 10 words.
    """
    text = " ".join(texts)
    letters = [char for char in text if char.isalpha()]
    han = sum("\u3400" <= char <= "\u9fff" or char >= "\U00020000" for char in letters)
    if not letters or han + sum(char <= _LAST_LATIN_LETTER for char in letters) < 0.98 * len(letters):
        raise UserError(
            "The language cannot be detected from the characters", "Set the language, for example with `--lang de`."
        )
    if han >= 0.05 * len(letters):
        return "zh"
    words = _WORD.findall(text.lower())
    is_english = len(words) < 10 or sum(word in _ENGLISH_WORDS for word in words) >= 0.05 * len(words)
    return "en" if is_english else "xx"
