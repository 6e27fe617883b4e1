"""Scores of pipelines, and the page of their errors."""
