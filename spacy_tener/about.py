"""The name and version of the package. The version in pyproject.toml is taken from this file."""

__title__ = "spacy_tener"
__version__ = "1.0.0"
