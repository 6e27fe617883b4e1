"""Docs as the model reads them: units, windows, batches, and the tags of units."""
