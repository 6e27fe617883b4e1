"""Create an HTML page that runs an exported model in the browser, for `export --page`.

The page contains the model, ONNX Runtime and `reader.js`, and therefore needs no server.
"""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..pages import Heading, make_page

# The npm package of ONNX Runtime for browsers.
RUNTIME = "onnxruntime-web"
TESTED_VERSION = "1.30.0"
# Maximum number of characters in a batch. A browser needs about a second for them.
MAX_CHARACTERS = 10_000
_SCRIPT, _WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
_VERSION = re.compile(r"ONNX Runtime Web v([\w.-]+)")
_EXPORTS = re.compile(r"\bexport ?\{([^{}]*)\};?\s*(//[^\n]*\s*)?$")


@dataclass(frozen=True)
class WebRuntime:
    """ONNX Runtime for browsers.

    version (str): The version.
    script (str): A JavaScript expression that evaluates to an object with ONNX Runtime's exports.
    wasm (bytes): The WebAssembly binary.
    """

    version: str
    script: str
    wasm: bytes


def read_runtime(folder: Path) -> WebRuntime:
    """Load ONNX Runtime for browsers from its npm package.

    folder (Path): The package directory, or its subdirectory `dist`.
    """
    folder = folder / "dist" if (folder / "dist").is_dir() else folder
    script, wasm = folder / _SCRIPT, folder / _WASM
    for path in (script, wasm):
        if not path.is_file():
            raise UserError(
                f"{folder}: has no {path.name}, which is needed to run the model in a browser",
                f"Run `npm install {RUNTIME}@{TESTED_VERSION}`, and pass --wasm node_modules/{RUNTIME}.",
            )
    text = script.read_text(encoding="utf8")
    version, exports = _VERSION.search(text), _EXPORTS.search(text)
    if version is None or exports is None:
        raise UserError(f"{script}: this version of {RUNTIME} is not supported", f"Use {RUNTIME}@{TESTED_VERSION}.")
    names = [name.split(" as ") for name in exports[1].split(",")]
    members = ", ".join(f"{name[-1].strip()}: {name[0].strip()}" for name in names)
    # Browsers do not start a worker from a JavaScript module if the page is a local file. Therefore the module is
    # converted to a function that returns its exports.
    body = text[: exports.start()].replace("import.meta.url", "location.href")
    return WebRuntime(version[1], f"(() => {{ {body}\nreturn {{ {members} }}; }})()", wasm.read_bytes())


def make_model_page(model: bytes, about: Mapping[str, Any], runtime: WebRuntime) -> str:
    """Return an HTML page that finds entities with an exported model.

    model (bytes): The exported ONNX file.
    about (Mapping[str, Any]): The metadata from `describe`.
    runtime (WebRuntime): ONNX Runtime for browsers.
    """
    pipeline = about["pipeline"]
    name = " ".join(part for part in (pipeline["name"], pipeline["version"]) if part)
    data = {
        "about": about,
        "labels": list(about["labels"]),
        "max_characters": MAX_CHARACTERS,
        "runtime": f"ONNX Runtime Web {runtime.version}",
        "worker": f"const ort = {runtime.script};\n{_reader()}\n{_read('worker.js')}",
        "wasm": _pack(runtime.wasm),
        "model": _pack(model),
    }
    heading = Heading(
        "Find entities",
        "{pipeline} · in your browser, without a server",
        {"pipeline": name},
        about["probabilities"] and pipeline["probabilities"] == "uncalibrated",
    )
    return make_page(__package__, "page", heading, data, lang=pipeline["lang"], parts=("found",), workers=True)


def _reader() -> str:
    """Return the code of reader.js, wrapped in a function that assigns its exports to the variable `reader`."""
    text = re.sub(r"^export ", "", _read("reader.js"), flags=re.M)
    return f"const reader = (() => {{ {text}\nreturn {{ load }}; }})();"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf8")


def _pack(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")
