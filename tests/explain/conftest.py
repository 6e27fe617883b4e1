"""Small pipelines of every architecture, which know two sentences by heart, and what is said of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import spacy
from small_systems import learn
from spacy.language import Language
from spacy.training import Example
from spacy.util import fix_random_seed

WORDS = ["中国", "银行", "中国银行", "上海", "重阳", "工作"]
PARTS = "银\t钅 艮\n海\t氵 每\n"
SENTENCES: list[tuple[str, dict[str, Any]]] = [
    ("吴重阳在中国银行工作。", {"entities": [(0, 3, "PER"), (4, 8, "ORG")]}),
    ("王小明去了上海", {"entities": [(0, 3, "PER"), (5, 7, "GPE")]}),
]
EMBED = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 12, "bigram_width": 8, "dropout": 0.0}
SIZES = {"width": 16, "dropout": 0.0}
NAMES = ["TENER", "FLAT", "FLAT_ATSSA", "MECT", "GRN"]


def tok2vec(name: str, directory: Path) -> dict[str, Any]:
    config: dict[str, Any] = {"@architectures": f"spacy_tener.{name}.v1", **SIZES, "embed": EMBED}
    if name != "GRN":
        config["heads"] = 2
    if name in ("FLAT", "FLAT_ATSSA", "MECT"):
        (directory / "words.txt").write_text("\n".join(WORDS) + "\n", encoding="utf8")
        lexicon = {"@misc": "spacy_tener.WordList.v1", "path": str(directory / "words.txt")}
        config["words"] = {"@architectures": "spacy_tener.LexiconEmbed.v1", "width": 8, "lexicon": lexicon}
    if name == "MECT":
        (directory / "parts.txt").write_text(PARTS, encoding="utf8")
        source = {"@misc": "spacy_tener.RadicalsFile.v1", "path": str(directory / "parts.txt")}
        config["radicals"] = {"@architectures": "spacy_tener.RadicalEmbed.v1", "width": 8, "source": source}
    return config


@pytest.fixture(scope="session")
def learned(tmp_path_factory):
    """Makes a pipeline of an architecture, once for all tests, which leave it as it is."""
    made: dict[str, Language] = {}

    def make(name: str = "FLAT_ATSSA") -> Language:
        if name not in made:
            fix_random_seed(0)
            nlp = spacy.blank("zh")
            model = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0}
            config = tok2vec(name, tmp_path_factory.mktemp(name))
            nlp.add_pipe("tener_ner", config={"model": {**model, "tok2vec": config}, "window": 40, "overlap": 10})
            examples = [Example.from_dict(nlp.make_doc(text), annotation) for text, annotation in SENTENCES]
            learn(nlp, examples, steps=60 if name == "GRN" else 25)
            made[name] = nlp
        return made[name]

    return make
