"""Python runs this when it starts with this folder in PYTHONPATH: torch is then as if it were not installed."""

import importlib.metadata
import sys

import catalogue

sys.modules["torch"] = sys.modules["transformers"] = None  # type: ignore[assignment] # importing them fails
# So do packages that need it, which would not be there either.
catalogue.AVAILABLE_ENTRY_POINTS = importlib.metadata.EntryPoints(
    point
    for distribution in importlib.metadata.distributions()
    for point in distribution.entry_points
    if not point.value.startswith("spacy_transformers")
)
