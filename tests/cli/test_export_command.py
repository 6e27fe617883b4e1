"""Test the command `export`: verification of the exported file, messages and errors."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import spacy
import tener_reader
from command_line import run_tener
from small_systems import TEXTS

import spacy_tener.cli.export as export_module
from spacy_tener.export.onnx_model import export_model

pytestmark = pytest.mark.integration

TEXT, ENTITIES = TEXTS[2]


@pytest.mark.parametrize("view", ["tener", "characters"])
def test_exported_file_is_verified_on_texts(saved: dict[str, Path], tmp_path: Path, view: str) -> None:
    ran = run_tener("export", saved[view], "-o", tmp_path / "new" / "ner.onnx")
    assert ran.code == 0, ran.text
    assert re.search(
        r"Verified on \d+ texts \([\d,]+ characters in total, generated texts\): the same [\d,]+ entities as in "
        r"the pipeline, with the same probabilities",
        ran.text,
    )
    (tmp_path / "in.txt").write_text("".join(f"{text}\n" for text, _ in TEXTS), encoding="utf8")
    ran = run_tener("export", saved[view], "-o", tmp_path / "ner.onnx", "--texts", tmp_path / "in.txt")
    verified = (
        f"Verified on 8 texts (83 characters in total, {tmp_path}/in.txt): the same 14 entities as in the pipeline"
    )
    assert f"{verified}, with the same prob" in ran.text
    found = tener_reader.load(tmp_path / "ner.onnx").entities(TEXT)
    assert [(entity["start"], entity["end"], entity["label"]) for entity in found] == ENTITIES


def test_differing_predictions_are_reported(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def export_changed(nlp: spacy.Language, name: str, half: bool) -> object:
        changed = spacy.load(saved["tener"])
        changed.get_pipe("tener_ner").cfg.update(temperature=3.0, threshold=0.7)
        return export_model(changed)

    monkeypatch.setattr(export_module, "export_model", export_changed)
    ran = run_tener("export", saved["tener"], "-o", tmp_path / "ner.onnx")
    assert ran.code == 0
    assert re.search(r"⚠ Verified on \d+ texts .* but the probabilities differ by up to 0\.\d{4}", ran.text)
    assert "Texts in which the ONNX model and the pipeline predict different entities" in ran.text


def test_same_path_for_file_and_page_raises_error(saved: dict[str, Path], tmp_path: Path) -> None:
    ran = run_tener("export", saved["tener"], "-o", tmp_path / "a.html", "--page", tmp_path / "a.html")
    assert ran.code == 2
    assert "the same path" in ran.text


def test_runtime_for_page_is_only_needed_if_pipeline_can_be_exported(saved: dict[str, Path], tmp_path: Path) -> None:
    english = spacy.blank("en")
    english.add_pipe("tener_ner", source=spacy.load(saved["tener"]))
    english.to_disk(tmp_path / "english")
    page = ("--page", tmp_path / "new", "--wasm", tmp_path)
    ran = run_tener("export", tmp_path / "english", *page)
    assert (ran.code, "uses words as tokens, and the tokenizer cannot be exported" in ran.text, "npm" in ran.text) == (
        1,
        True,
        False,
    )
    ran = run_tener("export", saved["tener"], "-o", tmp_path / "ner.onnx", *page)
    assert ran.code == 1
    assert f"{tmp_path}: has no ort.wasm.bundle.min.mjs" in ran.text
    assert "Run `npm install onnxruntime-web@1.30.0`" in ran.text
    assert not (tmp_path / "ner.onnx").exists()


def test_unexported_components_are_reported(saved: dict[str, Path], tmp_path: Path) -> None:
    nlp = spacy.load(saved["tener"])
    nlp.add_pipe("entity_ruler")
    nlp.to_disk(tmp_path / "model")
    ran = run_tener("export", tmp_path / "model", "-o", tmp_path / "ner.onnx")
    assert (ran.code, "Components that also predict entities, but were not exported: 1 entity_ruler" in ran.text) == (
        0,
        True,
    ), ran.text


def test_full_disk_leaves_existing_file_unchanged(
    saved: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ner.onnx").write_bytes(b"old")
    monkeypatch.setattr("spacy_tener.files.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space")))
    ran = run_tener("export", saved["tener"], "-o", tmp_path / "ner.onnx", "--force")
    assert (ran.code, "ner.onnx: cannot be written: No space Free some space" in ran.text) == (1, True), ran.text
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"old"]


def test_unsupported_onnx_version_raises_error_before_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnx.__version__", "2.0.0")
    monkeypatch.setattr("spacy.load", lambda *_, **__: pytest.fail("the pipeline is loaded"))
    ran = run_tener("export", "model", "-o", tmp_path / "ner.onnx")
    assert (ran.code, "onnx 2.0.0 is not supported" in ran.text) == (1, True), ran.text
