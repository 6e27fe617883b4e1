"""Annotation of large collections: `Annotator` for records in memory, and jobs that read and write files."""

from .annotator import Annotator
from .answers import AnnotateSettings

__all__ = ["AnnotateSettings", "Annotator"]
