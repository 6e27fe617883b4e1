"""Named entity recognition for spaCy with TENER, FLAT, MECT and other published architectures.

You don't have to import this package to call `nlp.add_pipe("tener_ner")`. spaCy loads the registered functions through
entry points.
"""

from .about import __version__

__all__ = ["__version__"]
