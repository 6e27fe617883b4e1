"""Read annotated corpora in the formats in which they are published, and convert them to spaCy's `.spacy` files.

`reader.CorpusReader` detects the format of a file and yields its sentences or texts (`annotation.Sentence`,
`annotation.AnnotatedText`). `columns`, `json_records` and `label_studio` parse one family of formats each. `docs`
converts sentences and texts to spaCy Docs, and `convert` converts whole files and directories. `folds` divides a corpus
for cross-validation.

The command `convert` uses all of these modules. Other commands use `docs` to load `.spacy` files.
"""
