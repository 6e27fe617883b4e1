"""Prevent the import of the packages in the environment variable HIDDEN_PACKAGES.

Python runs this file at startup if its directory is in PYTHONPATH.
"""

import os
import sys

import catalogue

for name in os.environ["HIDDEN_PACKAGES"].split():
    sys.modules[name] = None  # type: ignore[assignment] # raises an ImportError when it is imported
# Remove the factories of spacy-transformers as well. It needs torch and transformers, and spaCy would import it.
points = catalogue.AVAILABLE_ENTRY_POINTS
catalogue.AVAILABLE_ENTRY_POINTS = {
    group: [point for point in points.select(group=group) if not point.value.startswith("spacy_transformers")]
    for group in points.groups
}
