"""Evaluation of trained pipelines on annotated texts.

`scores` counts true positives, false positives and false negatives as spaCy's scorer does, `errors_page` shows the
errors of a pipeline in an HTML page, and `calibration` fits the temperature of a CRF and its probability thresholds.

Used by the commands `evaluate` and `calibrate`.
"""
