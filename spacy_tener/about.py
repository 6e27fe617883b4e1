"""Name and version, for setup.py too, which reads them without importing the package."""

__title__ = "spacy_tener"
__version__ = "0.1.0"
