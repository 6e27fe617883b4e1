"""Help for human annotators: which texts to annotate next, and which annotations are probably wrong.

`active_learning` chooses uncertain and diverse texts from raw text. `suspected_errors` finds annotations that disagree
with the predictions of a model; without a trained pipeline, it trains models by cross-validation. `page` shows both in
an HTML page and applies the annotator's decisions to a corpus; `annotation_tools` writes texts for doccano, Label
Studio and Prodigy.

Used by the commands `suggest` and `review`. To annotate large collections automatically, see `spacy_tener.annotate`.
"""
