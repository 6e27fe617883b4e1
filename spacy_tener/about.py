"""Name and version of the package; pyproject.toml reads the version from here."""

__title__ = "spacy_tener"
__version__ = "1.0.0"
