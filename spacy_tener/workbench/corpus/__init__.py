"""Readers of the formats that NER corpora come in, and their conversion to `.spacy` files."""

from .convert import DocOptions, Report, convert, convert_file
from .inputs import Job, plan
from .offsets import OVERLAPS, UNITS, SpanRules
from .reader import FORMATS, CorpusReader, ReadOptions, read_corpus
from .records import AnnotatedText, CorpusError, Entity, Event, Notes, Sentence
from .schemes import SCHEMES, TagReader, spans_to_tags

__all__ = [
    "FORMATS",
    "OVERLAPS",
    "SCHEMES",
    "UNITS",
    "AnnotatedText",
    "CorpusError",
    "CorpusReader",
    "DocOptions",
    "Entity",
    "Event",
    "Job",
    "Notes",
    "ReadOptions",
    "Report",
    "Sentence",
    "SpanRules",
    "TagReader",
    "convert",
    "convert_file",
    "plan",
    "read_corpus",
    "spans_to_tags",
]
