"""Tools for annotators: choose texts to annotate, and find errors in existing annotation.

- `active_learning` chooses uncertain and diverse texts.
- `cross_validation` trains models on folds of a corpus.
- `suspected_errors` finds differences between gold annotation and predictions.
- `page` writes HTML pages for both tasks, and applies the annotator's corrections to a corpus.
- `annotation_tools` exports texts to doccano, Label Studio and Prodigy.

Used by the commands `suggest` and `review`. To annotate large collections automatically, see `spacy_tener.annotate`.
"""
