"""Trainings as processes, each in its directory."""
