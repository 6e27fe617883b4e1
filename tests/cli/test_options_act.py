"""Test options that other tests do not use: they change the result, or raise an error if they have no effect."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import small_encoders
import typer
from command_line import run_tener
from fastapi import FastAPI
from small_corpora import annotated, save_corpus, save_docs
from small_systems import TEXTS, trained
from tiny_transformer import save_tiny_transformer

from spacy_tener.cli import COMMANDS, tener_cli

GROUP: Any = typer.main.get_command(tener_cli)
VECTORS = "vectors encoder.onnx -o out --width 4"
ANNOTATE = "annotate model {} -o out -f jsonl --processes 1"
EFFECTIVE = [
    ("convert gb18030.txt -o out", "--encoding gb18030"),
    ("convert three.txt -o out", "--token-column 2"),
    ("suggest model text.txt -o out --format doccano -n 4", "--annotated known.txt"),
    ("silver model text.txt -o out", "--limit 2"),
    (f"{VECTORS} --max-words 99", "--words words.txt"),
    (f"{VECTORS} --words words.txt", "--max-words 9"),
    (f"{VECTORS} --words words.txt", "--outputs inner"),
    ("vectors encoder.onnx text.txt -o out --width 1", "--lang zh"),
    ("vectors bert -o out --words words.txt --width 4 --layers 1", "--layers 2"),
    ("evaluate model words.spacy -o out", "--gold-preproc"),
    (ANNOTATE.format("gb18030.txt"), "--encoding gb18030"),
    (ANNOTATE.format("rows.jsonl"), "--text content"),
    (ANNOTATE.format("rows.jsonl"), "--prefix x_"),
    (ANNOTATE.format("text.txt"), "--whole-files"),
    ("serve model --port 0", "--host 127.0.0.9"),
    ("serve model --port 0", "--max-body 9"),
    ("serve model --port 0", "--timeout 9"),
    ("serve model --port 0", "--allow-origin https://a.example"),
]
# Command lines with options that have no effect, which is an error.
INEFFECTIVE = [
    ("config --set training.max_steps=9 --output out.cfg --force", "--set, --output, --force"),
    ("config weibo --force", "--force"),
    ("vectors encoder.onnx -o out.vec --words words.txt --layers 2 --width 4", "--layers"),
    ("vectors bert -o out.vec --words words.txt --outputs inner --width 4", "--outputs"),
    ("vectors encoder.onnx -o out.vec --words words.txt --lang zh --width 4", "--lang"),
    ("evaluate model gold.spacy --displacy-limit 2", "--displacy-limit"),
    ("review model gold.spacy -o out --force", "--force"),
    ("trim model text.txt -o out --onnx int8 --min-count 2 --half", "--min-count, --half"),
    ("explain model 王小明去了上海 --limit 3", "--limit"),
    ("export model -o out.onnx --wasm ort", "--wasm"),
    ("annotate model rows.jsonl -o out -f jsonl --whole-files", "--whole-files"),
    ("annotate model gold.spacy -o out -f jsonl --encoding gb18030", "--encoding"),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with all files of the command lines."""
    folder = tmp_path_factory.mktemp("options")
    (folder / "model").symlink_to(trained("tener"))
    save_corpus(folder / "gold.spacy", TEXTS)
    words = annotated("王小明去了上海", [(0, 3, "PER"), (5, 7, "GPE")], words=["王小明", "去", "了", "上海"])
    save_docs(folder / "words.spacy", words)
    small_encoders.save(folder, small_encoders.mean_encoder())
    save_tiny_transformer(folder / "bert")
    texts = {
        "text.txt": "\n".join([*(text for text, _ in TEXTS), "A8a9京"]),
        "known.txt": "A8a9京",
        "code.py": "print('the code is imported')\n",
        "words.txt": "\n".join(small_encoders.CHARACTERS[:20]),
        "three.txt": "王 O I-PER\n小 I-PER O\n",
        "rows.jsonl": json.dumps({"text": "王小明去了上海", "content": "北京大学在北京", "id": "d"}),
    }
    for name, content in texts.items():
        (folder / name).write_text(content + "\n", encoding="utf8")
    (folder / "gb18030.txt").write_bytes("王 O\n海 B-PER\n".encode("gb18030"))
    return folder


class Outcome(NamedTuple):
    """The exit status of a command, its output, and the files it wrote to `out`."""

    code: int
    printed: str
    files: dict[str, bytes]


@pytest.fixture
def run_command(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Outcome]:
    """Return a function that runs a command in a copy of the directory. A service answers a single request."""

    async def ask(app: FastAPI) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
            return await client.post("/v1/entities", headers={"Origin": "https://a.example"})

    def serve(app: FastAPI, sock: Any, started: Callable[[], None]) -> None:
        answer = asyncio.run(ask(app))
        print(sock.getsockname()[0], answer.headers.get("access-control-allow-origin"), app.state.service.limits)

    def run(words: str) -> Outcome:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        shutil.copytree(shared, folder, symlinks=True)
        monkeypatch.chdir(folder)
        ran = run_tener(*words.split())
        written = [path for path in (folder / "out", *folder.glob("out/*")) if path.is_file()]
        printed = re.sub(r"[\d.]+ (characters/s|tokens per second|s\b)", "", ran.text.replace(str(folder), ""))
        return Outcome(ran.code, printed, {path.name: path.read_bytes() for path in written})

    monkeypatch.setattr("spacy_tener.serve.serve", serve)
    return run


@pytest.mark.parametrize(("words", "option"), EFFECTIVE, ids=[f"{w.split()[0]} {option}" for w, option in EFFECTIVE])
def test_option_changes_the_result(run_command: Callable[[str], Outcome], words: str, option: str) -> None:
    without, with_it = run_command(words), run_command(f"{words} {option}")
    assert with_it.code == 0, with_it.printed
    assert (with_it.files or with_it.printed) != (without.files or without.printed)


@pytest.mark.parametrize(("words", "options"), INEFFECTIVE)
def test_option_without_effect_raises_error(run_command: Callable[[str], Outcome], words: str, options: str) -> None:
    result = run_command(words)
    assert (result.code, result.files) == (2, {}), result.printed
    assert options in result.printed


@pytest.mark.parametrize("command", COMMANDS)
def test_code_is_imported_before_inputs_are_read(run_command: Callable[[str], Outcome], command: str) -> None:
    parameters = GROUP.get_command(None, command).params
    required = [parameter for parameter in parameters if parameter.required]
    words = [word for found in required for word in ((found.opts[0], "x") if found.opts[0][0] == "-" else ("x",))]
    if any("--code" in parameter.opts for parameter in parameters):
        assert "the code is imported" in run_command(" ".join([command, *words, "--code code.py"])).printed
