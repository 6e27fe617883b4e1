"""Readers for annotated corpora in common formats, and conversion to spaCy's `.spacy` files.

* `reader`: `CorpusReader` detects a file's format and yields its sentences or texts.
* `annotation`: data classes for annotated sentences and texts.
* `columns`, `json_records`, `label_studio`: parsers for the supported formats.
* `docs`: functions that convert sentences and texts to Docs, and that read and write `.spacy` files.
* `convert`: functions that convert files and directories, for the command `convert`.
* `folds`: folds for cross-validation.
* `tokenizers`: tokenizers for texts that are not tokenized.
"""
