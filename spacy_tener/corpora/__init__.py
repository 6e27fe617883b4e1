"""Readers for annotated corpora in common formats, and conversion to spaCy's `.spacy` files.

* `reader`: `CorpusReader` detects the format of a file and yields its sentences or texts.
* `annotation`: data classes for annotated sentences and texts.
* `columns`, `json_records`, `label_studio`: parsers for the supported formats.
* `docs`: conversion of sentences and texts to Docs, and functions that read and write `.spacy` files.
* `convert`: conversion of files and directories, for the command `convert`.
* `folds`: folds for cross-validation.
* `tokenizers`: tokenizers for texts that are not tokenized.
"""
