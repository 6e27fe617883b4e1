"""The meta.json of a pipeline that is to be packaged: what `spacy package`, `spacy info` and the Hub read of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import InvalidVersion, Version

from ...errors import RemedyError
from .card_sources import Source, dictionary_sources

# A segmenter -> what it needs at run time. The packages of registered functions `spacy package` finds by itself.
_SEGMENTERS = {"jieba": "jieba>=0.42.1", "pkuseg": "spacy-pkuseg>=0.0.27"}
_SCORES = ("ents_p", "ents_r", "ents_f", "ents_per_type", "speed")
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True)
class Chosen:
    """What nobody but the user knows. None leaves what meta.json has."""

    name: str | None = None
    version: str | None = None
    license: str | None = None
    author: str | None = None


def identifier(name: str) -> str:
    """A name that a Python module and a wheel can have: `weibo_flat-atssa` becomes `weibo_flat_atssa`."""
    found = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")
    if not _NAME.fullmatch(found):
        raise RemedyError(f"'{name}' makes no name for a package", "Begin it with a letter, as in weibo_tener.")
    return found


def fill_meta(
    meta: Mapping[str, Any],
    config: Mapping[str, Any],
    scores: Mapping[str, Any],
    *,
    corpus: Source | None,
    chosen: Chosen,
) -> dict[str, Any]:
    """A pipeline's meta.json with what it is called, what it came from, and its scores on test instead of dev."""
    given = {key: value for key, value in vars(chosen).items() if value is not None}
    filled: dict[str, Any] = {**meta, **given}
    # setup.py of `spacy package` puts the language before the name, even where it is there.
    filled["name"] = identifier(filled["name"]).removeprefix(f"{filled['lang']}_")
    _check_version(filled["version"])
    filled["description"] = meta.get("description") or _description(filled, corpus)
    sources = [*([corpus] if corpus else []), *dictionary_sources(config)]
    filled["sources"] = [source.as_meta() for source in sources]
    filled["performance"] = {name: scores[name] for name in _SCORES if scores.get(name) is not None}
    segmenter = config["nlp"].get("tokenizer", {}).get("segmenter")
    needed = [_SEGMENTERS[segmenter]] if segmenter in _SEGMENTERS else []
    filled["requirements"] = list(dict.fromkeys([*meta.get("requirements", []), *needed]))
    return filled


def _check_version(version: str) -> None:
    """The directory in a wheel has the version as it is written, its file name as it is normalized."""
    try:
        normal = str(Version(version))
    except InvalidVersion as error:
        raise RemedyError(f"'{version}' is no version for a wheel", "Give one as in 1.0.0 or 1.0.0rc1.") from error
    if version != normal:
        raise RemedyError(f"A wheel spells the version '{version}' otherwise", f"Give {normal}.")


def _description(meta: Mapping[str, Any], corpus: Source | None) -> str:
    learned = f", trained on {corpus.name}" if corpus else ""
    return f"Named entity recognition by {', '.join(meta['pipeline'])} of spacy_tener{learned}."
