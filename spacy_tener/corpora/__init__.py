"""Annotated corpora: read them in the formats in which they are published, and convert them to spaCy's `.spacy` files.

`reader.CorpusReader` detects the format of a file and yields its sentences or texts (`annotation.Sentence`,
`annotation.AnnotatedText`); `columns`, `json_records` and `label_studio` each parse one family of formats. `docs` turns
them into spaCy Docs, and `convert` plans and runs the conversion of many files. `folds` divides a corpus for
cross-validation.

Used by the command `convert`, and by all commands that read `.spacy` files.
"""
