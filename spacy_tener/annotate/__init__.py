"""Texts by the million: their entities, whatever brings the texts and takes the answers."""

from .annotator import Annotator
from .settings import Settings

__all__ = ["Annotator", "Settings"]
