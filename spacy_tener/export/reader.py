"""Find named entities with a file that `tener export` wrote. This module only requires numpy and onnxruntime.

    ner = tener_reader.load("ner.onnx")
    ner.entities("王小明去了上海")

Copy this module as `tener_reader.py` to use it without this package. docs/elsewhere.md describes the file format.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

FORMAT = 1
"""The latest version of the file format that this reader supports."""
REMEDY = "Write it by `python -m spacy tener export`"


def load(model: str | os.PathLike[str] | bytes, *, threads: int = 0) -> Reader:
    """Load an exported file.

    model (str | PathLike | bytes): The path or the content of the file.
    threads (int): Number of threads. With 0, all cores are used.
    """
    name = "the model" if isinstance(model, bytes) else os.fspath(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        opened = model if isinstance(model, bytes) else os.fspath(model)
        session = ort.InferenceSession(opened, options, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
        about = json.loads(metadata.get("tener", "null"))
    except Exception as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{name}: not readable as a model: {reason}. {REMEDY} again.") from error
    if about is None:
        raise ValueError(f"{name}: a model, but no export of spacy_tener. {REMEDY}.")
    if about["format"] > FORMAT:
        versions = f"its format is {about['format']}, and this reader supports {FORMAT}"
        raise ValueError(
            f"{name}: written by a newer version of spacy_tener: {versions}. Use the reader of that version."
        )
    return Reader(session, about)


class Reader:
    """A loaded model.

    about (dict): The metadata of the file.
    """

    def __init__(self, session: ort.InferenceSession, about: dict[str, Any]) -> None:
        self.about = about
        self._session = session
        # Only the first hyphen is a separator, because a label may contain hyphens.
        names = [tag.partition("-") for tag in about["tags"]]
        self._labels = [label for _, _, label in names]
        self._opens = np.array([prefix in ("B", "S") for prefix, _, _ in names])
        self._closes = np.array([prefix in ("E", "S") for prefix, _, _ in names])

    def entities(self, text: str) -> list[dict[str, Any]]:
        """Return the entities in a text, in order. An outer entity precedes its inner entities. Offsets count code
        points."""
        return self.batch([text])[0]

    def batch(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """Return the entities in each of several texts. This is faster than single calls if the texts are short."""
        if isinstance(texts, str):
            raise TypeError("Texts must be a list of strings, and are of type str.")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"A text must be a string: number {index} is of type {type(text).__name__}.")
        # A lone surrogate is encoded as a code point.
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<i4").astype(np.int32)
        lengths = np.array([len(text) for text in texts], dtype=np.int32)
        tags, probabilities = self._session.run(["tags", "probabilities"], {"codes": codes, "lengths": lengths})
        # Each row contains the path of one nesting depth. The tags of a path are well-formed.
        (rows, begins), (_, ends) = np.nonzero(self._opens[tags]), np.nonzero(self._closes[tags])
        owners = np.searchsorted(np.cumsum(lengths), begins, side="right")
        offsets = (np.cumsum(lengths) - lengths)[owners]
        columns = owners, begins - offsets, ends + 1 - offsets, tags[rows, begins], probabilities[rows, ends]
        # Two paths may contain the same entity.
        entities = {
            (owner, start, -end, self._labels[tag]): probability
            for owner, start, end, tag, probability in zip(*map(np.ndarray.tolist, columns), strict=True)
        }
        has_probabilities, thresholds = self.about["probabilities"], self.about["thresholds"]
        found: list[list[dict[str, Any]]] = [[] for _ in texts]
        for (owner, start, end, label), probability in sorted(entities.items()):
            if not has_probabilities or probability >= thresholds.get(label, 0.0):
                entity = {"start": start, "end": -end, "label": label, "text": texts[owner][start:-end]}
                found[owner].append({**entity, "probability": probability if has_probabilities else None})
        return found
