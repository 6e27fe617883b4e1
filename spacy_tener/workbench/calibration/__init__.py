"""Calibration of a pipeline on annotated texts: the temperature of its CRF, thresholds, and the errors of both."""
