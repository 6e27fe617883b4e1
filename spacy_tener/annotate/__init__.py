"""Annotation of texts by the million, wherever they come from and go to."""

from .annotator import Annotator
from .settings import AnnotateSettings

__all__ = ["AnnotateSettings", "Annotator"]
