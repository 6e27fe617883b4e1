"""Evaluation of trained pipelines on annotated texts.

- `scores` counts true positives, false positives and false negatives in the same way as spaCy's scorer.
- `errors_page` creates an HTML page that shows a pipeline's errors.
- `calibration` fits a CRF's temperature, and probability thresholds for entities.

Used by the commands `evaluate` and `calibrate`.
"""
