"""Calibration of a pipeline on annotated texts: CRF temperature, thresholds, and calibration errors."""
