"""Named entity recognition for spaCy with TENER and its relatives.

`nlp.add_pipe("tener_ner")` needs no import of this package: spaCy finds what it registers by its entry points.
"""

from .about import __version__

__all__ = ["__version__"]
