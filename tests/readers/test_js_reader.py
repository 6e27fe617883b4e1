"""The JavaScript reader, in Node and in Chromium, finds in an exported file what the pipeline finds."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from browser import Browser
from exported import SYSTEMS, exported_cases

MARGIN = 1e-4
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
Promise.all(["/reader.js", "/answer.js", "/ort/ort.wasm.bundle.min.mjs"].map((path) => import(host + path)))
    .then(([{ load }, { answer }, ort]) => answer(load, requests, ort)).then(done, (error) => done(String(error)));
"""
Entity = dict[str, Any]
Ask = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


def ask_node(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    script = NODE % ((READER / "reader.js").as_uri(), Path(__file__).with_name("answer.js").as_uri())
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
    """The address of a host of the reader, of ONNX Runtime and of the exported files."""
    places = {
        "reader.js": READER / "reader.js",
        "answer.js": Path(__file__).with_name("answer.js"),
        "ort": READER / "node_modules" / "onnxruntime-web" / "dist",
        "models": exported_cases(),
    }

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            name, _, below = path.strip("/").partition("/")
            return str(places[name] / below) if name in places else "/nothing"

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def ask_chromium(browser: Browser, host: str) -> Ask:
    def ask(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        # Of a page that is not there, a browser shows a message, on which scripts run.
        browser.driver.get(f"{host}/nothing")
        browser.driver.set_script_timeout(120)
        for request in requests:
            request["model"] = f"{host}/models/{Path(request['model']).name}"
        answers: list[dict[str, Any]] = browser.driver.execute_async_script(CHROMIUM, requests)
        assert isinstance(answers, list), answers
        return answers

    return ask


def count_units(text: str, entity: Entity) -> Entity:
    """Return an entity with offsets as `String.slice` counts them."""
    units = [len(text[: entity[side]].encode("utf-16-le", "surrogatepass")) // 2 for side in ("start", "end")]
    return {**entity, "start": units[0], "end": units[1]}


def check(found: list[Entity], text: str, expected: list[Entity]) -> None:
    assert len(found) == len(expected)
    for entity, other in zip(found, expected, strict=True):
        assert entity == {**count_units(text, other), "probability": pytest.approx(other["probability"], abs=MARGIN)}


def check_systems(ask: Ask, systems: list[str]) -> None:
    """Compare the entities of texts, alone and together, with those of the cases."""
    folder = exported_cases()
    parts = [json.loads((folder / "cases.json").read_text(encoding="utf8"))[system] for system in systems]
    texts = [[case["text"] for case in part["cases"]] for part in parts]
    requests = [
        {"model": str(folder / part["file"]), "texts": part_texts}
        for part, part_texts in zip(parts, texts, strict=True)
    ]
    for part, answer in zip(parts, ask(requests), strict=True):
        assert "error" not in answer, answer
        for case, alone, together in zip(part["cases"], answer["alone"], answer["together"], strict=True):
            check(alone, case["text"], case["entities"])
            check(together, case["text"], case["entities"])


def test_entities_and_probabilities_in_node_are_the_pipelines() -> None:
    check_systems(ask_node, SYSTEMS)


def test_entities_and_probabilities_in_chromium_are_the_pipelines(ask_chromium: Ask) -> None:
    check_systems(ask_chromium, ["characters", "lac"])


@pytest.mark.slow
def test_every_system_in_chromium_finds_what_its_pipeline_finds(ask_chromium: Ask) -> None:
    check_systems(ask_chromium, SYSTEMS)
