"""A page that finds entities without a server: an exported model, its reader and ONNX Runtime in one HTML file."""

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

RUNTIME = "onnxruntime-web"
"""The package of npm."""
TESTED = "1.30.0"
MOST = 10_000
"""Characters of a text that the page reads at once. A browser computes them in about a second."""
_SCRIPT, _WASM = "ort.wasm.bundle.min.mjs", "ort-wasm-simd-threaded.wasm"
_VERSION = re.compile(r"ONNX Runtime Web v([\w.-]+)")
_EXPORTS = re.compile(r"\bexport ?\{([^{}]*)\};?\s*(//[^\n]*\s*)?$")


@dataclass(frozen=True)
class WebRuntime:
    """ONNX Runtime for browsers.

    script (str): An expression of JavaScript for its module.
    """

    version: str
    script: str
    wasm: bytes


def read_runtime(folder: Path) -> WebRuntime:
    """Read ONNX Runtime for browsers. folder: That of npm's package onnxruntime-web, or `dist` in it."""
    folder = folder / "dist" if (folder / "dist").is_dir() else folder
    script, wasm = folder / _SCRIPT, folder / _WASM
    for path in (script, wasm):
        if not path.is_file():
            raise RemedyError(
                f"{folder}: has no {path.name}, which computes the model in a browser",
                f"Run `npm install {RUNTIME}@{TESTED}`, and name node_modules/{RUNTIME} by --wasm.",
            )
    text = script.read_text(encoding="utf8")
    version, exports = _VERSION.search(text), _EXPORTS.search(text)
    if version is None or exports is None:
        raise RemedyError(f"{script}: not the script of {RUNTIME} as it was tested", f"Take {RUNTIME}@{TESTED}.")
    names = [name.split(" as ") for name in exports[1].split(",")]
    members = ", ".join(f"{name[-1].strip()}: {name[0].strip()}" for name in names)
    # A worker that a file starts cannot be a module: what a module exports becomes what a function returns.
    body = text[: exports.start()].replace("import.meta.url", "location.href")
    return WebRuntime(version[1], f"(() => {{ {body}\nreturn {{ {members} }}; }})()", wasm.read_bytes())


def make_model_page(model: bytes, about: Mapping[str, Any], runtime: WebRuntime) -> str:
    """Return the page of an exported model.

    model (bytes): The file.
    about (Mapping[str, Any]): What it says of itself.
    """
    pipeline = about["pipeline"]
    name = " ".join(part for part in (pipeline["name"], pipeline["version"]) if part)
    data = {
        "about": about,
        "labels": list(about["labels"]),
        "most": MOST,
        "runtime": f"ONNX Runtime Web {runtime.version}",
        "worker": f"const ort = {runtime.script};\n{_reader()}\n{_read('worker.js')}",
        "wasm": _pack(runtime.wasm),
        "model": _pack(model),
    }
    heading = Heading("Find entities", "{pipeline} · in your browser, without a server", {"pipeline": name})
    return make_page(__package__, "page", heading, data, lang=pipeline["lang"], parts=("found",), workers=True)


def _reader() -> str:
    """Return the reader for JavaScript as an object of what it exports."""
    text = re.sub(r"^export ", "", _read("reader.js"), flags=re.M)
    return f"const reader = (() => {{ {text}\nreturn {{ load }}; }})();"


def _read(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf8")


def _pack(content: bytes) -> str:
    return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")
