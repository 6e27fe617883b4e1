"""Requirements of a trained pipeline in its meta.json, which `spacy package` copies to the wheel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from importlib.metadata import version

from spacy.language import Language
from spacy.util import split_requirement
from thinc.api import Model

from ..about import __title__, __version__
from ..models.embed.onnx import FrozenFeatures
from ..models.embed.segment import SegmentVocabulary

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
}
"""Registered function -> the dictionary that it reads and that the pipeline stores, as a source in meta.json."""


def add_requirements(nlp: Language) -> None:
    """Add the models' requirements to meta.json, replacing those of the same packages; what is known of pretrained
    encoders, and the dictionaries that the pipeline stores.

    Every version of this package below the next major one can load the pipeline. By default `spacy package` would
    require the same minor version.
    """
    needed, encoders = list[str](), list[dict[str, str]]()
    models = [getattr(pipe, "model", None) for _, pipe in nlp.components]
    for node in itertools.chain.from_iterable(model.walk() for model in models if isinstance(model, Model)):
        features = node.attrs.get("features")
        if isinstance(features, FrozenFeatures) and features.is_read:
            needed += features.encoder.requirements
            encoders.append(features.encoder.description)
        if node.name == "transformer_embed":
            needed += TRANSFORMER
        if isinstance(node.attrs.get("vocabulary"), SegmentVocabulary):
            needed.append(f"rjieba>={version('rjieba')}")
    segmenter = nlp.config["nlp"].get("tokenizer", {}).get("segmenter")
    needed += [SEGMENTERS[segmenter]] if segmenter in SEGMENTERS else []
    require(nlp, needed, encoders)
    config = nlp.config.to_str(interpolate=False)
    for name, source in DICTIONARIES.items():
        if f'"{name}"' in config and source not in nlp.meta.setdefault("sources", []):
            nlp.meta["sources"].append(source)


def requirements() -> Callable[[Language], None]:
    """Write what the pipeline needs to meta.json, where another component than `tener_ner` has this package's encoders.

    Registered as `spacy_tener.Requirements.v1`, for `[initialize.after_init]`.
    """
    return add_requirements


def require(nlp: Language, needed: Iterable[str], encoders: Iterable[dict[str, str]]) -> None:
    """Add requirements, this package's own, and descriptions of encoders to meta.json."""
    major = int(__version__.partition(".")[0])
    needed = [f"{__title__}>={__version__},<{major + 1}", *needed]
    names = {split_requirement(requirement)[0] for requirement in needed}
    kept = [each for each in nlp.meta.get("requirements", []) if split_requirement(each)[0] not in names]
    nlp.meta["requirements"] = [*kept, *dict.fromkeys(needed)]
    if described := {each["name"]: each for each in [*nlp.meta.get("encoders", []), *encoders]}:
        nlp.meta["encoders"] = list(described.values())
