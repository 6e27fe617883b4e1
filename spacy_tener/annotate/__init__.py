"""Annotate large collections of texts.

    annotator = Annotator("my_pipeline")
    annotator([{"id": 7, "text": "王小明去了上海"}])   # the same records, with the columns `entities` and `error`

`annotator` adds entities to records in memory. `records` reads records from files in parts, `output` writes the
annotated parts, and `local` runs both in several processes. `arrow` converts records to Arrow tables, and `encoding`
to JSON. Used by the commands `annotate`, `silver`, `suggest` and `explain`, and in Spark or Ray jobs.
"""

from .annotator import Annotator
from .answers import AnnotateSettings

__all__ = ["AnnotateSettings", "Annotator"]
