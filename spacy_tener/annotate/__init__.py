"""Annotate large collections of texts with a trained pipeline.

The commands `annotate`, `silver`, `suggest` and `explain` use this package. You can also use the `Annotator` in your
own code, for example in a Spark or Ray job:

    annotator = Annotator("my_pipeline")
    annotator([{"id": 7, "text": "王小明去了上海"}])   # returns the record with the new columns `entities` and `error`

The module `annotator` annotates records in memory. To annotate files, `records` reads the input, `output` writes the
annotated records, and `local` distributes the work to several processes. `arrow` converts records to Arrow tables, and
`encoding` converts records to JSON.
"""

from .annotator import Annotator
from .answers import AnnotateSettings

__all__ = ["AnnotateSettings", "Annotator"]
