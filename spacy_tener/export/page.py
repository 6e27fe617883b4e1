"""An HTML page that finds entities without a server. It contains an exported model, its reader and ONNX Runtime.

Used by `export --page`.
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

from ..errors import RemedyError
from ..pages import Heading, make_page

# Name of the npm package of ONNX Runtime for browsers.
RUNTIME = "onnxruntime-web"
TESTED_VERSION = "1.30.0"
# Maximum number of characters that are predicted at once, which takes a browser about a second.
MAX_CHARACTERS = 10_000
_SCRIPT, _WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
_VERSION = re.compile(r"ONNX Runtime Web v([\w.-]+)")
_EXPORTS = re.compile(r"\bexport ?\{([^{}]*)\};?\s*(//[^\n]*\s*)?$")


@dataclass(frozen=True)
class WebRuntime:
    """ONNX Runtime for browsers.

    version (str): The version.
    script (str): A JavaScript expression that returns an object with the exports of the module.
    wasm (bytes): The WebAssembly binary.
    """

    version: str
    script: str
    wasm: bytes


def read_runtime(folder: Path) -> WebRuntime:
    """Read ONNX Runtime for browsers from the directory of the npm package, or from its subdirectory `dist`."""
    folder = folder / "dist" if (folder / "dist").is_dir() else folder
    script, wasm = folder / _SCRIPT, folder / _WASM
    for path in (script, wasm):
        if not path.is_file():
            raise RemedyError(
                f"{folder}: has no {path.name}, which is needed to run the model in a browser",
                f"Run `npm install {RUNTIME}@{TESTED_VERSION}`, and pass --wasm node_modules/{RUNTIME}.",
            )
    text = script.read_text(encoding="utf8")
    version, exports = _VERSION.search(text), _EXPORTS.search(text)
    if version is None or exports is None:
        raise RemedyError(f"{script}: this version of {RUNTIME} is not supported", f"Use {RUNTIME}@{TESTED_VERSION}.")
    names = [name.split(" as ") for name in exports[1].split(",")]
    members = ", ".join(f"{name[-1].strip()}: {name[0].strip()}" for name in names)
    # A page that is opened as a file cannot start a worker from a module. Therefore the module is converted to a
    # function that returns its exports.
    body = text[: exports.start()].replace("import.meta.url", "location.href")
    return WebRuntime(version[1], f"(() => {{ {body}\nreturn {{ {members} }}; }})()", wasm.read_bytes())


def make_model_page(model: bytes, about: Mapping[str, Any], runtime: WebRuntime) -> str:
    """Return the HTML page of an exported model.

    model (bytes): The exported ONNX file.
    about (Mapping[str, Any]): The metadata of the file, from `describe`.
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
    heading = Heading("Find entities", "{pipeline} · in your browser, without a server", {"pipeline": name})
    return make_page(__package__, "page", heading, data, lang=pipeline["lang"], parts=("found",), workers=True)


def _reader() -> str:
    """Return JavaScript code that defines `reader`, an object with the exports of reader.js."""
    text = re.sub(r"^export ", "", _read("reader.js"), flags=re.M)
    return f"const reader = (() => {{ {text}\nreturn {{ load }}; }})();"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf8")


def _pack(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")
