"""Requirements of a trained pipeline in its meta.json, which `spacy package` copies to the wheel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import srsly
from spacy.language import Language
from spacy.util import split_requirement
from thinc.api import Config, Model

from ..about import __title__, __version__
from ..models.embed.onnx import FrozenFeatures
from ..models.embed.segment import SegmentVocabulary
from ..onnx.encoder import Encoder

# As in the extra `transformers` of pyproject.toml.
TRANSFORMER = ("torch>=2.4", "transformers>=4.36")
# Segmenter of spaCy's Chinese tokenizer -> its package. `spacy package` finds the packages of registered functions.
SEGMENTERS = {"jieba": "jieba>=0.42.1", "pkuseg": "spacy-pkuseg>=0.0.27"}
DICTIONARIES = {
    "spacy_tener.JiebaLexicon.v1": {
        "name": "jieba's dictionary",
        "url": "https://github.com/fxsjy/jieba",
        "license": "MIT",
        "author": "Sun Junyi",
    },
    "spacy_tener.HanziChaizi.v1": {
        "name": "漢語拆字字典",
        "url": "https://github.com/kfcd/chaizi",
        "license": "CC BY 3.0",
        "author": "開放詞典",
    },
    "spacy_tener.GloVe.v1": {
        "name": "GloVe 6B",
        "url": "https://nlp.stanford.edu/projects/glove/",
        "license": "PDDL 1.0",
        "author": "Jeffrey Pennington, Richard Socher, Christopher D. Manning",
    },
}
"""Registered function -> the dictionary or vectors that the pipeline stores, as a source in meta.json."""


def save_requirements(path: Path, pipe: Any) -> None:
    """Add what a component needs to the meta.json of the pipeline that it is saved with.

    A component does it whenever it is saved: spaCy tells nobody that a pipeline sources it.

    path (Path): The component's directory.
    """
    meta_path, config_path = path.parent / "meta.json", path.parent / "config.cfg"
    if meta_path.is_file() and config_path.is_file():
        meta = srsly.read_json(meta_path)
        update_meta(meta, Config().from_disk(config_path, interpolate=False), [pipe])
        srsly.write_json(meta_path, meta)


def add_requirements(nlp: Language) -> None:
    """Add what all components need to meta.json."""
    update_meta(nlp.meta, nlp.config, [pipe for _, pipe in nlp.components])


def update_meta(meta: dict[str, Any], config: Config, pipes: Iterable[Any]) -> None:
    """Add the components' requirements, in place of those of the same packages; what is known of pretrained encoders,
    and the dictionaries that the pipeline stores.

    Every version of this package below the next major one can load the pipeline. By default `spacy package` would
    require the same minor version.
    """
    needed = [f"{__title__}>={__version__},<{int(__version__.partition('.')[0]) + 1}"]
    encoders = list[Encoder]()
    for pipe in pipes:
        encoders += [pipe.tagger.encoder] if hasattr(pipe, "tagger") else []
        for node in pipe.model.walk() if isinstance(getattr(pipe, "model", None), Model) else ():
            features = node.attrs.get("features")
            encoders += [features.encoder] if isinstance(features, FrozenFeatures) and features.is_read else []
            needed += TRANSFORMER if node.name == "transformer_embed" else []
            if isinstance(node.attrs.get("vocabulary"), SegmentVocabulary):
                needed.append(f"rjieba>={version('rjieba')}")
    needed += itertools.chain.from_iterable(encoder.requirements for encoder in encoders)
    segmenter = config["nlp"].get("tokenizer", {}).get("segmenter")
    needed += [SEGMENTERS[segmenter]] if segmenter in SEGMENTERS else []
    by_package = {split_requirement(requirement)[0]: requirement for requirement in meta.get("requirements", [])}
    by_package |= {split_requirement(requirement)[0]: requirement for requirement in needed}
    meta["requirements"] = list(by_package.values())
    descriptions = {encoder["name"]: encoder for encoder in meta.get("encoders", [])}
    descriptions |= {encoder.description["name"]: encoder.description for encoder in encoders}
    if descriptions:
        meta["encoders"] = list(descriptions.values())
    text = config.to_str(interpolate=False)
    for name, source in DICTIONARIES.items():
        if f'"{name}"' in text and source not in meta.setdefault("sources", []):
            meta["sources"].append(source)


def requirements() -> Callable[[Language], None]:
    """Write what the pipeline needs to meta.json, where another component than `tener_ner` has this package's encoders.

    Registered as `spacy_tener.Requirements.v1`, for `[initialize.after_init]`.
    """
    return add_requirements
