"""Scores of trained pipelines, pages of their errors, and the calibration of their probabilities."""
