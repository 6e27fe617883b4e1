"""Evaluation of trained pipelines on annotated texts.

`scores` counts true positives, false positives and false negatives like spaCy's scorer, `errors_page` writes an HTML
page with the errors of a pipeline, and `calibration` fits the temperature of a CRF and probability thresholds.

Used by the commands `evaluate` and `calibrate`.
"""
