"""Python runs this when it starts with this folder in PYTHONPATH: packages in LEFT_OUT are then as if not installed."""

import os
import sys

import catalogue

for name in os.environ["LEFT_OUT"].split():
    sys.modules[name] = None  # type: ignore[assignment] # importing it fails
# So does a package that needs all of them. spaCy loads whatever registers a factory, and this takes the longest.
points = catalogue.AVAILABLE_ENTRY_POINTS
catalogue.AVAILABLE_ENTRY_POINTS = {
    group: [point for point in points.select(group=group) if not point.value.startswith("spacy_transformers")]
    for group in points.groups
}
