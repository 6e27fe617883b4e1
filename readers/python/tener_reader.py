"""Named entities in a text, by a file that `tener export` wrote. Needs numpy and onnxruntime only: copy this module.

    ner = tener_reader.load("ner.onnx")
    ner.entities("王小明去了上海")

docs/elsewhere.md has the contract of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

FORMAT = 1
"""The version of the contract that this reader reads."""
REMEDY = "Write it by `python -m spacy tener export`"


def load(model: str | os.PathLike[str] | bytes, *, threads: int = 0) -> Reader:
    """Load an exported file.

    model (str | PathLike | bytes): Its path, or what is in it.
    threads (int): How many threads compute; 0 for as many as the machine has cores.
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
        versions = f"its format is {about['format']}, and this reader knows {FORMAT}"
        raise ValueError(
            f"{name}: written by a newer version of spacy_tener: {versions}. Take the reader of that version."
        )
    return Reader(session, about)


class Reader:
    """A model that is loaded. about (dict): what the file says of itself."""

    def __init__(self, session: ort.InferenceSession, about: dict[str, Any]) -> None:
        self.about = about
        self._session = session
        # A label may have a hyphen in it.
        names = [tag.partition("-") for tag in about["tags"]]
        self._labels = [label for _, _, label in names]
        self._opens = np.array([prefix in ("B", "S") for prefix, _, _ in names])
        self._closes = np.array([prefix in ("E", "S") for prefix, _, _ in names])

    def entities(self, text: str) -> list[dict[str, Any]]:
        """Find the entities of a text, in its order, those around others first. Offsets count code points."""
        return self.batch([text])[0]

    def batch(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """Find the entities of several texts together, which is faster for short ones."""
        if isinstance(texts, str):
            raise TypeError("Texts must be a list of strings, and are of type str.")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"A text must be a string: number {index} is of type {type(text).__name__}.")
        # A lone surrogate is a code point like others.
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<i4").astype(np.int32)
        lengths = np.array([len(text) for text in texts], dtype=np.int32)
        tags, probabilities = self._session.run(["tags", "probabilities"], {"codes": codes, "lengths": lengths})
        # A row is a path: entities within others have one of their own. Paths are well formed.
        (rows, begins), (_, ends) = np.nonzero(self._opens[tags]), np.nonzero(self._closes[tags])
        owners = np.searchsorted(np.cumsum(lengths), begins, side="right")
        offsets = (np.cumsum(lengths) - lengths)[owners]
        columns = owners, begins - offsets, ends + 1 - offsets, tags[rows, begins], probabilities[rows, ends]
        # Two paths may have the same entity.
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
