"""The requirements of a trained pipeline in its meta.json: packages, pretrained encoders, and licences of data.

`spacy package` copies them to the metadata of the wheel, so that pip installs what the pipeline needs.
"""

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

# The requirements of a transformer, the same as in the extra `transformers` in pyproject.toml.
TRANSFORMER = ("torch>=2.4", "transformers>=4.36")
# The requirement of each segmenter of spaCy's Chinese tokenizer. `spacy package` finds only packages of registered
# functions.
SEGMENTERS = {"jieba": "jieba>=0.42.1", "pkuseg": "spacy-pkuseg>=0.0.27"}
# The dictionaries and vectors that registered functions store in a pipeline, as entries of `sources` in meta.json.
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


class Pretrained(Protocol):
    """A pretrained encoder, as it is described in meta.json.

    requirements (list[str]): The packages that the encoder needs, as requirements of pip.
    description (dict[str, Any]): Its entry in `encoders` of meta.json, with its name, origin and licence.
    """

    @property
    def requirements(self) -> list[str]: ...

    @property
    def description(self) -> dict[str, Any]: ...


def add_requirements(nlp: Language, *, replaced: Collection[str] = ()) -> None:
    """Add the requirements of all components of a pipeline to its meta.

    nlp (Language): The pipeline.
    replaced (Collection[str]): Requirements to remove first, since the pipeline no longer needs them.
    """
    components = [pipe for _, pipe in nlp.components]
    models = [model for pipe in components if isinstance(model := getattr(pipe, "model", None), Model)]
    nlp.meta.pop("encoders", None)  # The entries of an earlier initialization may be outdated.
    nlp.meta["requirements"] = [name for name in nlp.meta.get("requirements", []) if name not in replaced]
    _update(nlp.meta, nlp.config, [*components, *(layer for model in models for layer in model.walk())])


def requirements() -> Callable[[Language], None]:
    """Create a callback that adds the requirements of all components to the meta of a pipeline.

    Registered as `spacy_tener.Requirements.v1`. Use it as `[initialize.after_init]` if other components than
    `tener_ner` use the encoders of this package.
    """
    return add_requirements


def save_requirements(path: Path, parts: Iterable[Any]) -> None:
    """Add the requirements of a component to the meta.json of its pipeline, when the pipeline is saved.

    spaCy doesn't tell a component that it was sourced into another pipeline. So each component adds its requirements
    when it is saved, which is after spaCy has written meta.json and config.cfg. If these files don't list the
    component, the directory isn't the component's pipeline, and nothing is changed.

    path (Path): The directory of the component.
    parts (Iterable[Any]): The layers of the component's model, or the component itself.
    """
    meta_path, config_path = path.parent / "meta.json", path.parent / "config.cfg"
    if not (meta_path.is_file() and config_path.is_file()):
        return
    try:
        meta, config = srsly.read_json(meta_path), Config().from_disk(config_path, interpolate=False)
        named = path.name in meta["components"] and path.name in config["components"]
    except (ValueError, KeyError, TypeError):  # files with these names that spaCy has not written
        return
    if named:
        _update(meta, config, parts)
        srsly.write_json(meta_path, meta)


def _update(meta: dict[str, Any], config: Config, parts: Iterable[Any]) -> None:
    """Add the requirements, pretrained encoders and stored dictionaries of a pipeline to its meta.

    A new requirement replaces an existing one for the same package. The pipeline requires this package in any version
    below the next major version, since all of them can load it; by default, `spacy package` would require the same
    minor version.

    meta (dict[str, Any]): The content of meta.json, which is modified.
    config (Config): The config of the pipeline.
    parts (Iterable[Any]): Layers and components, some of which have the properties `packages` and `encoders`.
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
    if descriptions:  # The digest tells encoders with the same name apart.
        meta["encoders"] = list({(entry["name"], entry.get("digest")): entry for entry in descriptions}.values())
    text = config.to_str(interpolate=False)
    for name, source in DICTIONARIES.items():
        if f'"{name}"' in text and source not in meta.setdefault("sources", []):
            meta["sources"].append(source)
