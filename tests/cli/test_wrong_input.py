"""Test that commands reject common wrong input with a clear message, and leave files unchanged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import spacy
import thinc.compat
import thinc.util
from command_line import run_tener
from run_directories import make_run
from small_corpora import save_corpus, save_docs

TEXT = "王小明去了上海"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a directory with pipelines, corpora, texts, a training run, and empty and damaged files."""
    folder = tmp_path_factory.mktemp("work")
    nlp = spacy.blank("zh")
    nlp.to_disk(folder / "blank")
    nlp.add_pipe("tener_ner").add_label("PER")
    nlp.initialize()
    nlp.to_disk(folder / "model")
    save_corpus(folder / "gold.spacy", [(TEXT, [(0, 3, "PER")])])
    save_docs(folder / "bare.spacy", nlp.make_doc(TEXT))
    (folder / "bad.txt").write_text("a O\nb B-\n", encoding="utf8")
    (folder / "tokens.jsonl").write_text('{"tokens": ["EU"], "ner_tags": [1]}', encoding="utf8")
    (folder / "broken.jsonl").write_text("{", encoding="utf8")
    (folder / "broken.spacy").write_text("no DocBin", encoding="utf8")
    (folder / "empty.spacy").touch()
    (folder / "text.txt").write_text(TEXT, encoding="utf8")
    (folder / "empty.txt").touch()
    shutil.copytree(folder / "blank", folder / "strings")
    (folder / "strings/vocab/strings.json").write_text("[", encoding="utf8")
    make_run(folder / "runs", "weibo/tener/1", f=0.5)
    (folder / "training" / "model-best").mkdir(parents=True)
    return folder


FILES = (
    "evaluate model gold.spacy",
    "explain model text.txt",
    "suggest model text.txt",
    "config sample",
    "export model",
)
DIRECTORIES = ("silver model text.txt",)


@pytest.mark.parametrize(
    ("words", "output", "message"),
    [
        *((words, "folder.html", "folder.html: is a directory Use the path of a file.") for words in FILES),
        *((words, "pipe.html", "pipe.html: is not a regular file Use the path of a file.") for words in FILES),
        *((words, "text.txt/a.html", "a.html: cannot be written, because {}/text.txt is not a") for words in FILES),
        *((words, "text.txt", "text.txt: not a directory") for words in DIRECTORIES),
    ],
)
def test_unwritable_output_raises_error_before_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, output: str, message: str
) -> None:
    monkeypatch.chdir(folder)
    Path("folder.html").mkdir(exist_ok=True)
    if not Path("pipe.html").exists():
        os.mkfifo("pipe.html")
    monkeypatch.setattr("spacy.load", lambda *_, **__: pytest.fail("the pipeline is loaded"))
    ran = run_tener(*words.split(), "--output", output)
    assert ran.code == 1
    assert "Errno" not in ran.text
    assert message.format(folder) in ran.text
    assert Path("text.txt").read_text(encoding="utf8") == TEXT


WRONG_INPUT = [
    ("calibrate model broken.spacy -o {new}", "broken.spacy: is not a .spacy file"),
    (
        "calibrate model gold.spacy -o {new} --component ner",
        "no tener_ner named 'ner' Its components are: tener",
    ),
    ("convert missing.txt -o {new}", "missing.txt"),
    ("convert empty.txt -o {new}", "empty.txt"),
    ("convert bad.txt -o {new}", "✘ bad.txt:2: 'B-' is not a tag A tag is O"),
    ("convert tokens.jsonl -o {new}", "tokens.jsonl:1: tag 1 has no name (0 names given)"),
    ("convert gold.spacy -o {new}", "gold.spacy: is a .spacy file already"),
    ("convert text.txt text.txt -o {new}", "would be written to"),
    ("evaluate nope gold.spacy", "Can't find model 'nope'"),
    ("evaluate strings gold.spacy", "strings.json: Expecting"),
    ("evaluate runs gold.spacy", "Could not read meta.json"),
    ("serve training", "Could not read meta.json from training Use training/model-best."),
    ("evaluate model bare.spacy -o {new}.json", "no entities to score"),
    ("evaluate model broken.spacy", "broken.spacy: is not a .spacy file Create one with `spacy tener convert`."),
    ("evaluate model empty.spacy", "empty.spacy: is not a .spacy file"),
    ("evaluate model text.txt", "contains no texts in .spacy files Create .spacy files with `spacy tener convert`."),
    ("evaluate model runs", "contains no texts in .spacy files Create .spacy files with `spacy tener convert`."),
    ("export model -o text.txt", "text.txt: exists already Choose another path, or add --force to overwrite it."),
    (
        "export blank -o {new}",
        "The pipeline has no tener_ner Its components are: none. Use a pipeline with a trained tener_ner",
    ),
    ("export model -o {new} --component ner", "has no tener_ner named 'ner' Its components are: tener_ner."),
    ("export model -o {new} --texts missing.txt", "missing.txt: cannot be read: No such file"),
    ("export model -o {new} --texts empty.txt", "empty.txt: no texts were found"),
    ("export model -o {new} --texts broken.jsonl", "broken.jsonl:1: not valid JSON"),
    ("explain model missing.jsonl -o {new}.html", "missing.jsonl: there is no such file"),
    ("explain model runs -o {new}.html", "runs: contains no texts in .spacy files"),
    ("explain model text.txt --component other -o {new}.html", "no tener_ner named 'other'"),
    ("suggest blank text.txt -o {new}.jsonl", "The pipeline has no tener_ner"),
    ("suggest model text.txt -o {new} -f doccano --annotated text.txt", "There are no texts to select"),
    ("trim model text.txt -o runs", "exists already, but isn't a pipeline Use a new directory."),
    ("trim model text.txt -o {new} --component ner", "has no tener_ner named 'ner'"),
    ("explain blank text.txt -o {new}.html", "The pipeline has no tener_ner"),
    ("review blank gold.spacy -o {new}", "The pipeline has no tener_ner"),
    ("calibrate blank gold.spacy -o {new}", "The pipeline has no tener_ner"),
    ("trim blank text.txt -o {new}", "The pipeline has no tener_ner"),
    ("serve blank", "blank has no component that predicts entities Use a pipeline with a trained tener_ner."),
    ("annotate blank text.txt -o {new} -f jsonl", "has no component that predicts entities"),
    ("review nope gold.spacy -o {new}", "Can't find model 'nope'"),
    (
        "review sample gold.spacy -o {new}",
        "which does not exist Set a development set to select the best model, for example --dev dev.spacy.",
    ),
    ("review --apply nope.json gold.spacy -o {new}.spacy", "nope.json: cannot be read: No such file or directory"),
    ("evaluate model nope.spacy", "nope.spacy: cannot be read: No such file or directory"),
    ("calibrate model nope.spacy -o {new}", "nope.spacy: cannot be read: No such file or directory"),
    (
        "calibrate model gold.spacy -o model",
        "--output model: exists already Use a new directory, or add --force to overwrite it.",
    ),
    ("debug-data nope.cfg", "Could not read config file from nope.cfg"),
    ("silver model empty.txt -o {new}", "empty.txt: no texts were found"),
    ("trim model empty.txt -o {new}", "empty.txt: no texts were found"),
    ("annotate model empty.txt -o {new} -f jsonl", "empty.txt: no texts were found"),
    ("suggest model empty.txt -o {new}.jsonl", "empty.txt: no texts were found"),
    ("explain model empty.txt -o {new}.html", "empty.txt: contains no text"),
]
WRONG_COMMAND_LINE = [
    ("annotate model text.txt -o {new} -f csv", "'csv' is not one of"),
    ("calibrate model gold.spacy -o {new} --confidence 0.8", "--confidence: used only with --precision"),
    ("calibrate model gold.spacy -o {new} --precision 1.5", "1.5 is not between 0 and 1"),
    ("convert text.txt", "Missing option '--output'"),
    ("convert text.txt -o {new} --from csv", "'csv' is not one of: auto,"),
    ("convert text.txt -o {new} --scheme BIX", "Unknown tag scheme 'BIX'"),
    ("convert text.txt -o {new} --overlap first", "'first' is not one of"),
    ("convert text.txt -o {new} --lang qqq", "spaCy has no tokenizer for the language 'qqq'"),
    ("evaluate model", "Missing argument"),
    ("evaluate model gold.spacy --explain 3", "--explain: requires --page"),
    ("explain model text.txt -o page.docx", "page.docx: unknown format"),
    ("review model -o {new}", "There is no annotation to review"),
    (
        "review model gold.spacy -o {new} --dev gold.spacy",
        "--dev: used only to train models, but model is a trained pipeline",
    ),
    ("review model gold.spacy -o {new} -s training.max_steps=9", "--set: used only to train models"),
    (
        "review model gold.spacy -o {new} --folds 5 -j 2",
        "--folds, --jobs: used only to train models, but model is a trained pipeline",
    ),
    ("review gold.spacy --apply d.json -o {new} --limit 3", "--limit: has no effect with --apply"),
    ("review model gold.spacy --apply d.json -o {new}", "model: --apply needs no model"),
    ("serve a/model-best b/model-best", "Several models have the same name"),
    ("serve =a", "Several models have the same name"),
    ("serve model --allow-origin here", "'here' is not an origin"),
    ("evaluate model gold.spacy -o {new}.json --page {new}.json", "Two output files have the same path"),
    ("silver , text.txt -o {new}", "No pipeline given"),
    ("silver model text.txt -o {new} --entity-threshold 1.5", "Invalid value for '--entity-threshold'"),
    (
        "silver model text.txt -o {new} --outside-threshold 0.5",
        "'--outside-threshold': 0.5 is not between 0.5 and 1. Use a number",
    ),
    ("suggest model text.txt -o {new}.bin", "Set --format to one of: doccano, labelstudio, prodigy, page."),
    ("suggest model text.txt -o {new} --format conll", "'conll' is not one of: doccano, labelstudio"),
    (
        "suggest model text.txt -o {new}.jsonl --labels PER",
        "--labels: doccano defines the labels in its project settings",
    ),
    ("trim model text.txt -o {new} --min-count 0", "min-count"),
    ("vectors minilm -o {new} --words text.txt --layers 1,-2", "--layers 1,-2: not a list of numbers Use"),
    ("wectors text.txt", "No such command 'wectors'"),
]


@pytest.mark.parametrize(
    ("code", "words", "message"),
    [*((1, *row) for row in WRONG_INPUT), *((2, *row) for row in WRONG_COMMAND_LINE)],
)
def test_wrong_input_raises_clear_error_and_writes_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str, message: str
) -> None:
    monkeypatch.chdir(folder)
    if code == 2:
        monkeypatch.setattr("spacy.load", lambda *_, **__: pytest.fail("the pipeline is loaded"))
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    ran = run_tener(*words.format(new=tmp_path / "new").split())
    assert (ran.code, message in ran.text) == (code, True), ran.text
    assert "[W" not in ran.text
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("lines", "code", "counts"),
    [
        (["{"], 1, ("1 text,", "1 error")),
        (["{", '{"text": ""}'], 0, ("2 texts,", "1 error")),
        (['{"text": ""}'], 0, ("1 text,", "0 errors")),
    ],
)
def test_annotate_fails_if_all_texts_are_invalid(
    folder: Path, tmp_path: Path, lines: list[str], code: int, counts: tuple[str, str]
) -> None:
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf8")
    words = ["annotate", folder / "model", tmp_path / "in.jsonl", "-o", tmp_path / "out", "-f", "jsonl"]
    for _ in range(2):  # The second call resumes a finished job.
        ran = run_tener(*words, "--processes", 1)
        assert ran.code == code
        assert all(count in ran.text for count in counts), ran.text
        assert ("No text could be processed. The column error contains the errors." in ran.text) == (code == 1)
        assert len((tmp_path / "out" / "part-00000.jsonl").read_text(encoding="utf8").splitlines()) == len(lines)


@pytest.fixture
def set_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], None]:
    """Return a function that sets the number of GPUs of the machine. None means that CuPy is not installed."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("spacy.load", lambda *_, **__: pytest.fail("the pipeline is loaded"))

    def set_number(number: int | None) -> None:
        runtime = SimpleNamespace(getDeviceCount=lambda: number)
        monkeypatch.setattr(thinc.compat, "cupy", SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
        monkeypatch.setattr(thinc.compat, "has_cupy", number is not None)
        monkeypatch.setattr(thinc.compat, "has_cupy_gpu", bool(number))
        monkeypatch.setattr(thinc.util, "gpu_is_available", lambda: bool(number))

    return set_number


USE_CPU = "To use the CPU, remove --gpu-id."


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (None, 'CuPy is not installed Run `pip install "cupy-cuda12x[ctk]"`, or install cupy-cuda13x for CUDA 13.'),
        (0, f"no GPU was found Run `nvidia-smi -L` to check which GPUs the driver finds. {USE_CPU}"),
        (1, f"the only GPU is 0 Use --gpu-id 0. {USE_CPU}"),
        (3, f"the last GPU is 2 Use an id from 0 to 2. {USE_CPU}"),
    ],
)
def test_unavailable_gpu_error_describes_available_gpus(
    set_gpus: Callable[[int | None], None], number: int | None, message: str
) -> None:
    set_gpus(number)
    ran = run_tener("evaluate", "model", "gold.spacy", "--gpu-id", "7")
    assert ran.code == 1
    assert f"GPU 7 cannot be used: {message}" in ran.text


def test_gpu_error_contains_cupy_message(
    set_gpus: Callable[[int | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(gpu_id: int) -> None:
        raise RuntimeError("CUDA-capable device(s) is/are busy or unavailable")

    set_gpus(1)
    monkeypatch.setattr(thinc.util, "require_gpu", busy)
    ran = run_tener("evaluate", "model", "gold.spacy", "--gpu-id", "0")
    assert ran.code == 1
    assert "GPU 0 cannot be used: CUDA-capable device(s) is/are busy" in ran.text
