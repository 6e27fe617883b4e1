"""Add a trained pipeline's requirements to its `meta.json`: packages, pretrained encoders and data licences.

`spacy package` copies the requirements to the wheel's metadata, so that pip installs all required packages.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import srsly
from spacy.language import Language
from spacy.util import split_requirement
from thinc.api import Config, Model

from .about import __title__, __version__

# Packages that a transformer requires. Keep in sync with the `transformers` extra in pyproject.toml.
TRANSFORMER = ("torch>=2.4", "transformers>=4.36")
# Packages that spaCy's Chinese tokenizer requires, for each segmenter. `spacy package` doesn't detect them, because a
# segmenter is not a registered function.
SEGMENTERS = {"jieba": "jieba>=0.42.1", "pkuseg": "spacy-pkuseg>=0.0.27"}
# Data that registered functions copy into a pipeline, as entries for the `sources` list in `meta.json`.
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
# The first address in the origin of an encoder.
_LINK = re.compile(r"https?://[^\s,;]+")


class Pretrained(Protocol):
    """A pretrained encoder that a layer uses.

    requirements (list[str]): Packages that the encoder requires, such as `torch>=2.4`.
    description (dict[str, Any]): Entry for the `encoders` list in `meta.json`: name, source and licence.
    """

    @property
    def requirements(self) -> list[str]: ...

    @property
    def description(self) -> dict[str, Any]: ...


def add_requirements(nlp: Language, *, replaced: Collection[str] = ()) -> None:
    """Add the requirements of all components to the pipeline's meta.

    nlp (Language): The pipeline.
    replaced (Collection[str]): Requirements to remove from the meta, because the pipeline no longer needs them.
    """
    components = [pipe for _, pipe in nlp.components]
    models = [model for pipe in components if isinstance(model := getattr(pipe, "model", None), Model)]
    # Remove entries from an earlier call, because the encoders may have changed.
    removed = list(map(source_of, nlp.meta.pop("encoders", [])))
    if nlp.meta.get("sources"):
        nlp.meta["sources"] = [source for source in nlp.meta["sources"] if source not in removed]
    nlp.meta["requirements"] = [name for name in nlp.meta.get("requirements", []) if name not in replaced]
    _update(nlp.meta, nlp.config, [*components, *(layer for model in models for layer in model.walk())])


def requirements() -> Callable[[Language], None]:
    """Create a callback that adds the required packages of all components to the pipeline's `meta.json`.

    Registered as `spacy_tener.Requirements.v1`. `tener_ner` adds its requirements without this callback. Set it as
    `[initialize.after_init]` if another component, such as spaCy's `ner`, uses an encoder from this package.
    """
    return add_requirements


def save_requirements(path: Path, parts: Iterable[Any]) -> None:
    """Add a component's requirements to the `meta.json` of the pipeline that is being saved.

    Components call this function in `to_disk`. At that time, spaCy has already written `meta.json` and `config.cfg`. It
    is too early to add the requirements when the pipeline is created, because a component isn't notified if another
    pipeline sources it.

    Nothing is changed if `meta.json` and `config.cfg` are missing or don't contain the component.

    path (Path): The component's directory.
    parts (Iterable[Any]): The layers of the component's model, or the component itself.
    """
    meta_path, config_path = path.parent / "meta.json", path.parent / "config.cfg"
    if not (meta_path.is_file() and config_path.is_file()):
        return
    try:
        meta, config = srsly.read_json(meta_path), Config().from_disk(config_path, interpolate=False)
        named = path.name in meta["components"] and path.name in config["components"]
    # The files were not written by spaCy.
    except (ValueError, KeyError, TypeError):
        return
    if named:
        _update(meta, config, parts)
        srsly.write_json(meta_path, meta)


def _update(meta: dict[str, Any], config: Config, parts: Iterable[Any]) -> None:
    """Add a pipeline's requirements, pretrained encoders and dictionaries to its meta.

    A new requirement replaces an existing requirement for the same package. For this package, the requirement allows
    all later minor versions, since they can load the pipeline. Without this requirement, `spacy package` would exclude
    later minor versions.

    meta (dict[str, Any]): The content of `meta.json`. Modified in place.
    config (Config): The pipeline's config.
    parts (Iterable[Any]): Layers and components. Their optional attributes `packages` and `encoders` are collected.
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
    # Two encoders may have the same name but different weights, so the key contains the digest.
    if descriptions:
        meta["encoders"] = list({(entry["name"], entry.get("digest")): entry for entry in descriptions}.values())
    text = config.to_str(interpolate=False)
    sources = [source for name, source in DICTIONARIES.items() if f'"{name}"' in text]
    sources += map(source_of, meta.get("encoders", []))
    listed = meta.get("sources") or []
    if new := [source for source in sources if source not in listed]:
        meta["sources"] = [*listed, *new]


def source_of(encoder: Mapping[str, Any]) -> dict[str, str]:
    """Return the entry of a pretrained encoder for the `sources` list in `meta.json`.

    `spacy package` writes this list to the README of the wheel.

    encoder (Mapping[str, Any]): The entry for the `encoders` list in `meta.json`.
    """
    licence = encoder.get("licence") or "unknown"
    # The README contains the name of a source, but not its licence.
    source = {"name": f"{encoder['name']} ({licence})", "license": licence}
    link = _LINK.search(encoder.get("origin") or "")
    return {**source, "url": link[0]} if link else source
