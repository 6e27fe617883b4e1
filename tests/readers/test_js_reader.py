"""The JavaScript reader, in Node and in Chromium, predicts the same entities as the exported pipeline."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import tener_reader
from browser import Browser
from exported import SYSTEMS, exported, find_cases
from small_encoders import recurrent_encoder

pytestmark = pytest.mark.integration

TOLERANCE = 1e-4
READER = Path(__file__).parents[2] / "readers" / "js"
NODE = """
import { load } from "%s";
import { answer } from "%s";
let input = "";
for await (const part of process.stdin) input += part;
process.stdout.write(JSON.stringify(await answer(load, JSON.parse(input))));
"""
CHROMIUM = """
const [requests, done] = arguments;
const host = location.origin;
Promise.all(["/reader.js", "/answer.mjs", "/ort/ort.wasm.bundle.min.mjs"].map((path) => import(host + path)))
    .then(([{ load }, { answer }, ort]) => answer(load, JSON.parse(requests), ort))
    .then((answers) => done(JSON.stringify(answers)), (error) => done(String(error)));
"""
Entity = dict[str, Any]
RequestFunction = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def ask_node(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    script = NODE % ((READER / "reader.js").as_uri(), Path(__file__).with_name("answer.mjs").as_uri())
    run = subprocess.run(
        ["node", "--input-type=module", "--eval", script],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    answers: list[dict[str, Any]] = json.loads(run.stdout)
    return answers


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    """The URL of a server that provides the reader, ONNX Runtime and the exported files."""
    paths = {
        "reader.js": READER / "reader.js",
        "answer.mjs": Path(__file__).with_name("answer.mjs"),
        "ort": READER / "node_modules" / "onnxruntime-web" / "dist",
        "models": exported("tener").parent,
    }

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            name, _, subpath = path.strip("/").partition("/")
            return str(paths[name] / subpath) if name in paths else "/nothing"

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def ask_chromium(browser: Browser, host: str) -> RequestFunction:
    def ask(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # Scripts can run on the error page that the browser shows for a missing page.
        browser.driver.get(f"{host}/nothing")
        browser.driver.set_script_timeout(250)
        urls = [
            {**request, "model": f"{host}/models/{Path(request['model']).name}"}
            if isinstance(request["model"], str)
            else request
            for request in requests
        ]
        # Pass the requests as ASCII text, since the driver does not accept lone surrogates.
        answers: list[dict[str, Any]] = json.loads(browser.driver.execute_async_script(CHROMIUM, json.dumps(urls)))
        return answers

    return ask


@pytest.fixture(params=["node", "chromium"])
def ask(request: pytest.FixtureRequest) -> RequestFunction:
    asks: RequestFunction = ask_node if request.param == "node" else request.getfixturevalue("ask_chromium")
    return asks


def check(found: list[Entity], text: str, expected: list[Entity]) -> None:
    """Compare entities with expected ones, whose offsets are characters. JavaScript counts UTF-16 code units."""
    units = [0, *itertools.accumulate(1 + (character > "\uffff") for character in text)]
    assert [{**entity, "probability": None} for entity in found] == [
        {**entity, "start": units[entity["start"]], "end": units[entity["end"]], "probability": None}
        for entity in expected
    ]
    for entity, other in zip(found, expected, strict=True):
        assert entity["probability"] == pytest.approx(other["probability"], abs=TOLERANCE)


def check_systems(ask: RequestFunction, systems: list[str]) -> None:
    """Compare the entities of texts with the test cases, for single texts and for a batch."""
    cases = [find_cases(system) for system in systems]
    requests = [
        {"model": str(exported(system)), "texts": [case["text"] for case in system_cases]}
        for system, system_cases in zip(systems, cases, strict=True)
    ]
    for system_cases, answer in zip(cases, ask(requests), strict=True):
        assert "error" not in answer, answer
        for case, alone, together in zip(system_cases, answer["alone"], answer["together"], strict=True):
            check(alone, case["text"], case["entities"])
            check(together, case["text"], case["entities"])


def test_node_predicts_same_entities_as_pipeline() -> None:
    check_systems(ask_node, ["tener", "grn", "encoders", "lac-characters", "nested-lists"])


def test_chromium_predicts_same_entities_as_pipeline(ask_chromium: RequestFunction) -> None:
    check_systems(ask_chromium, ["characters", "nested", "lac"])


@pytest.mark.slow
def test_node_predicts_same_entities_for_all_systems() -> None:
    check_systems(ask_node, SYSTEMS)


@pytest.mark.slow
def test_chromium_predicts_same_entities_for_all_systems(ask_chromium: RequestFunction) -> None:
    check_systems(ask_chromium, SYSTEMS)


@pytest.fixture(scope="module")
def folder() -> Path:
    """The folder with the exported files and some invalid files."""
    folder = exported("tener").parent
    content = exported("tener").read_bytes()
    newer = content.replace(b'"format": 1,', b'"format": 9,')
    assert newer.count(b'"format": 9,') == 2
    contents = {
        "cut": content[: len(content) // 2],
        "text": b"no model\n" * 100,
        "empty": b"",
        "other": recurrent_encoder().SerializeToString(),
        "newer": newer,
    }
    for name, content in contents.items():
        (folder / f"{name}.onnx").write_bytes(content)
    return folder


FIX = "Export the pipeline with `python -m spacy tener export`"


@pytest.mark.parametrize(
    ("model", "texts", "messages"),
    [
        (
            "missing",
            [],
            [r"missing\.onnx.* (cannot be loaded as an ONNX model: .*Export|the server responded with status 404)"],
        ),
        ("cut", [], [r"cut\.onnx cannot be loaded as an ONNX model: .*", f"{FIX} again."]),
        ("text", [], [r"text\.onnx cannot be loaded as an ONNX model: .*", f"{FIX} again."]),
        ("empty", [], [r"empty\.onnx cannot be loaded as an ONNX model: .*", f"{FIX} again."]),
        ("other", [], [r"other\.onnx was not exported by spacy_tener\.", f"{FIX}."]),
        (
            "newer",
            [],
            [
                r"newer\.onnx was exported by a newer version of spacy_tener:",
                r"it has the format 9, but this reader only supports the format 1\.",
                r"Use the reader from the version of spacy_tener that exported the model\.",
            ],
        ),
        (
            5,
            [],
            [
                r"TypeError: A model must be a URL, a path or bytes \(Uint8Array, ArrayBuffer\),",
                r"but got a value of type number\.",
            ],
        ),
        ("tener", "京", ["TypeError: Texts must be an array of strings, but got a value of type string"]),
        ("tener", ["京", 5], ["TypeError: A text must be a string, but got a value of type number at index 1"]),
        ("tener", [None], ["TypeError: A text must be a string, but got null at index 0"]),
        ("tener", [["京"]], ["TypeError: A text must be a string, but got an array at index 0"]),
    ],
)
def test_invalid_input_raises_error_with_fix(
    ask: RequestFunction, folder: Path, model: Any, texts: Any, messages: list[str]
) -> None:
    source = str(folder / f"{model}.onnx") if isinstance(model, str) else model
    [answer] = ask([{"model": source, "texts": texts}])
    assert re.search(" ".join(messages), answer["error"], re.S), answer


def test_lone_surrogates_count_as_characters(ask: RequestFunction, folder: Path) -> None:
    texts = ["\ud800", "王小明\udfff去了上海", "\udc00\ud800王小明去了\ud800", "\udbff\udbff𠮷王小明"]
    [answer] = ask([{"model": str(folder / "tener.onnx"), "texts": texts}])
    expected = tener_reader.load(folder / "tener.onnx").batch(texts)
    assert sum(map(len, expected)) > 3
    for text, alone, together, entities in zip(texts, answer["alone"], answer["together"], expected, strict=True):
        check(alone, text, entities)
        check(together, text, entities)


@pytest.mark.slow
def test_text_of_one_million_characters_is_supported(ask: RequestFunction, folder: Path) -> None:
    text = "王小明昨天去了上海，吴重阳在中国银行工作。\n" * 47_620
    [answer] = ask([{"model": str(folder / "tener.onnx"), "texts": [text]}])
    check(answer["together"][0], text, tener_reader.load(folder / "tener.onnx").entities(text))
