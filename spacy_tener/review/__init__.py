"""Support for annotators: the choice of texts to annotate next, and the review of gold annotation.

`active_learning` chooses uncertain and diverse texts. `suspected_errors` compares gold annotation with the predictions
of a trained pipeline, or of models that it trains by cross-validation. `page` writes HTML pages for both, and applies
the annotator's decisions to a corpus. `annotation_tools` writes texts for doccano, Label Studio and Prodigy.

Used by the commands `suggest` and `review`. To annotate large collections automatically, see `spacy_tener.annotate`.
"""
