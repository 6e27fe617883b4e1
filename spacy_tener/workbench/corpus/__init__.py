"""Readers of the formats that NER corpora come in, and their conversion to `.spacy` files."""

from .convert import ConversionReport, DocOptions, convert, convert_jobs
from .inputs import Job, plan_jobs
from .offsets import OVERLAPS, UNITS, SpanRules
from .reader import FORMATS, CorpusReader, ReadOptions, read_corpus
from .records import AnnotatedText, CorpusError, EntitySpan, Event, Notes, Sentence
from .schemes import SCHEMES, TagReader

__all__ = [
    "FORMATS",
    "OVERLAPS",
    "SCHEMES",
    "UNITS",
    "AnnotatedText",
    "ConversionReport",
    "CorpusError",
    "CorpusReader",
    "DocOptions",
    "EntitySpan",
    "Event",
    "Job",
    "Notes",
    "ReadOptions",
    "Sentence",
    "SpanRules",
    "TagReader",
    "convert",
    "convert_jobs",
    "plan_jobs",
    "read_corpus",
]
