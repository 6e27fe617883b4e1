"""Named entity recognition with an ONNX file that `spacy tener export` wrote.

    ner = tener_reader.load("ner.onnx")
    ner.entities("王小明去了上海")

This module only requires numpy and onnxruntime, so you can copy it to your project. docs/browser-and-node.md describes
the format of the file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

# The version of the file format that this reader supports.
FORMAT = 1
FIX = "Export the pipeline with `python -m spacy tener export`"


def load(model: str | os.PathLike[str] | bytes, *, threads: int = 0) -> Reader:
    """Load an exported file.

    model (str | PathLike | bytes): Path of the file, or its content.
    threads (int): Number of threads. By default (0), one thread per core is used.
    RETURNS (Reader): The reader, whose method `entities` finds the entities of a text.
    """
    name = "The model" if isinstance(model, bytes) else os.fspath(model)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    try:
        source = model if isinstance(model, bytes) else os.fspath(model)
        session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        metadata = session.get_modelmeta().custom_metadata_map
        about = json.loads(metadata.get("tener", "null"))
    except Exception as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{name} cannot be loaded as an ONNX model: {reason}. {FIX} again.") from error
    if about is None:
        raise ValueError(f"{name} was not exported by spacy_tener. {FIX}.")
    if about["format"] > FORMAT:
        formats = f"it has the format {about['format']}, but this reader only supports the format {FORMAT}"
        raise ValueError(
            f"{name} was exported by a newer version of spacy_tener: {formats}. Use the reader from the version of "
            "spacy_tener that exported the model."
        )
    return Reader(session, about)


class Reader:
    """A loaded model. Create it with `load`.

    about (dict): Metadata of the model: labels, thresholds, licence and more.
    """

    def __init__(self, session: ort.InferenceSession, about: dict[str, Any]) -> None:
        self.about = about
        self._session = session
        # The separator is the first hyphen, since labels can contain hyphens as well.
        tags = [tag.partition("-") for tag in about["tags"]]
        self._labels = [label for _, _, label in tags]
        self._starts_entity = np.array([prefix in ("B", "S") for prefix, _, _ in tags])
        self._ends_entity = np.array([prefix in ("E", "S") for prefix, _, _ in tags])

    def entities(self, text: str) -> list[dict[str, Any]]:
        """Return the entities of a text, sorted by their start. Outer entities precede their nested entities.

        RETURNS (list[dict]): The keys are `start`, `end`, `label`, `text` and `probability`. Offsets count code points.
            The probability is None if the model does not compute probabilities.
        """
        return self.batch([text])[0]

    def batch(self, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
        """Return the entities of several texts. For short texts, this is faster than single calls."""
        if isinstance(texts, str):
            raise TypeError("Texts must be a list of strings, but got a single string.")
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise TypeError(f"A text must be a string, but got {type(text).__name__} at index {index}.")
        # The encoding "utf-32-le" yields one integer per code point. "surrogatepass" also allows lone surrogates.
        codes = np.frombuffer("".join(texts).encode("utf-32-le", "surrogatepass"), dtype="<i4").astype(np.int32)
        lengths = np.array([len(text) for text in texts], dtype=np.int32)
        tags, probabilities = self._session.run(["tags", "probabilities"], {"codes": codes, "lengths": lengths})
        # Each row contains a tag sequence. If the model predicts nested entities, there is one row for each nesting
        # depth. All sequences are valid, so the n-th start of an entity belongs to its n-th end.
        (rows, begins), (_, ends) = np.nonzero(self._starts_entity[tags]), np.nonzero(self._ends_entity[tags])
        text_index = np.searchsorted(np.cumsum(lengths), begins, side="right")
        offsets = (np.cumsum(lengths) - lengths)[text_index]
        columns = text_index, begins - offsets, ends + 1 - offsets, tags[rows, begins], probabilities[rows, ends]
        # Two rows can contain the same entity. The keys contain the negative end, so that outer entities are sorted
        # before their nested entities.
        entities = {
            (index, start, -end, self._labels[tag]): probability
            for index, start, end, tag, probability in zip(*map(np.ndarray.tolist, columns), strict=True)
        }
        has_probabilities, thresholds = self.about["probabilities"], self.about["thresholds"]
        found: list[list[dict[str, Any]]] = [[] for _ in texts]
        for (index, start, end, label), probability in sorted(entities.items()):
            if not has_probabilities or probability >= thresholds.get(label, 0.0):
                entity = {"start": start, "end": -end, "label": label, "text": texts[index][start:-end]}
                found[index].append({**entity, "probability": probability if has_probabilities else None})
        return found
