"""Exported files in Node and in Chromium beside their pipelines: speed, first result, memory and sizes."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import _report
import spacy
from speed import pipe_all, read_texts

from spacy_tener.workbench.export.export import describe, export_model, find_tagger
from spacy_tener.workbench.export.page import make_model_page, read_runtime

sys.path.append(str(_report.ROOT / "tests"))

from browser import Browser, started

READERS = _report.ROOT / "readers" / "js"
RUNTIME = READERS / "node_modules" / "onnxruntime-web"
NODE = Path(__file__).with_suffix(".mjs")
NOTES = (
    "The test part of {corpus}: {n_texts} texts, {n_characters:,} characters, in batches of {batch_size}, with "
    "probabilities but for `nlp.pipe` in brackets. Node {node}, {chromium}, onnxruntime-node and onnxruntime-web "
    "{runtime}, the latter as WASM. "
    "CPU time on one core; all take turns within each of {rounds} rounds, medians. Ratios are to `nlp.pipe` with "
    "probabilities and without.",
    "First result: wall time, beside other work. Node: from its start to the first text's entities. The page: from "
    "opening its file to the entities of its example, in a browser that has just started (cold), and when it is loaded "
    "again (warm). Medians of {repeats}. Memory: what Node takes more while it reads a text of "
    "{size:,} characters. MB are millions of bytes; the page has the model, the reader and ONNX Runtime in it.",
)
SPEED = ("pipeline", "nlp.pipe, chars/s", "Node, chars/s", "ratio", "Chromium, chars/s", "ratio")
COSTS = ("pipeline", "Node, s", "page cold, s", "page warm, s", "memory, MB", "file, MB", "page, MB", "page --half, MB")
LOAD = """
const [texts, size, done] = arguments;
Promise.all(["/reader/reader.js", "/ort/ort.wasm.bundle.min.mjs"].map((path) => import(location.origin + path)))
    .then(async ([{ load }, ort]) => {
        ort.env.wasm.numThreads = 1;
        const ner = await load(location.origin + "/model/ner.onnx", ort);
        window.readAll = async () => {
            for (let start = 0; start < texts.length; start += size) await ner.batch(texts.slice(start, start + size));
        };
    }).then(() => done(""), (error) => done(String(error)));
"""
READ = "const done = arguments[0]; readAll().then(() => done(''), (error) => done(String(error)));"
SHOWN = "return document.querySelectorAll('#text .ent').length"


def main() -> None:
    args = parse_args()
    _report.single_thread(args.cpu)
    texts = read_texts(args.data / args.corpus / "test.spacy")
    speed, costs, chromium = [], [], ""
    for name, path in _report.named_paths(args.pipelines).items():
        with TemporaryDirectory() as folder:
            nlp = spacy.load(path)
            write_files(nlp, Path(folder))
            cells, first, chromium = measure_speed(nlp, path, Path(folder), texts, args)
            speed.append([name, *cells])
            costs.append(
                [name, first[0], *measure_page(Path(folder, "page.html"), args), first[1], *sizes(Path(folder))]
            )
    numbers = {
        "n_texts": len(texts),
        "n_characters": sum(map(len, texts)),
        "node": subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()[1:],
        "runtime": json.loads((RUNTIME / "package.json").read_text(encoding="utf8"))["version"],
        "chromium": chromium,
    }
    notes = [note.format(**vars(args), **numbers) for note in NOTES]
    tables = [_report.table(*pair) for pair in ((SPEED, speed), (COSTS, costs))]
    parts = [part for pair in zip(notes, tables, strict=True) for part in pair]
    _report.write(args.out, f"Exported files in Node and in Chromium: {args.corpus}", *parts)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline")
    parser.add_argument("--corpus", required=True, help="directory under --data")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/test.spacy")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=100_000, help="characters of the long text")
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, help="default: research/results/javascript-CORPUS.md")
    args = parser.parse_args()
    args.out = args.out or _report.RESULTS / f"javascript-{args.corpus}.md"
    return args


def write_files(nlp: Any, folder: Path) -> None:
    """Write the file of a pipeline and its page, with rows in 32 and in 16 bits."""
    about, runtime = describe(nlp, find_tagger(nlp)), read_runtime(RUNTIME)
    for name, half in (("", False), ("-half", True)):
        model = export_model(nlp, half=half).SerializeToString()
        (folder / f"ner{name}.onnx").write_bytes(model)
        (folder / f"page{name}.html").write_text(make_model_page(model, about, runtime), encoding="utf8")


def sizes(folder: Path) -> list[str]:
    return [f"{(folder / name).stat().st_size / 1e6:.1f}" for name in ("ner.onnx", "page.html", "page-half.html")]


def measure_speed(
    nlp: Any, path: Path, folder: Path, texts: Sequence[str], args: argparse.Namespace
) -> tuple[list[str], list[str], str]:
    """Return cells of speed, cells of Node's start and memory, and the browser's name."""
    scored = spacy.load(path)
    scored.get_pipe("tener_ner").cfg["spans_key"] = "sc"
    (folder / "texts.json").write_text(json.dumps(texts), encoding="utf8")
    words = [
        "node",
        str(NODE),
        str(folder / "ner.onnx"),
        str(folder / "texts.json"),
        str(args.batch_size),
        str(args.size),
    ]
    firsts = []
    for _ in range(args.repeats):
        with running(words) as node:
            firsts.append(json.loads(node()))
    starts, memory = (statistics.median(column) for column in zip(*firsts, strict=True))
    with running(words) as node, started() as browser, host(folder) as url:
        node()
        browser.driver.get(f"{url}/nothing")
        browser.driver.set_script_timeout(600)
        assert browser.driver.execute_async_script(LOAD, texts, args.batch_size) == ""
        clocks: dict[str, Callable[[], float]] = {
            "scored": partial(cpu_of, partial(pipe_all, scored, texts, args.batch_size)),
            "plain": partial(cpu_of, partial(pipe_all, nlp, texts, args.batch_size)),
            "node": lambda: float(node()),
            "chromium": partial(cpu_of_browser, browser),
        }
        rounds = [{name: clock() for name, clock in clocks.items()} for _ in range(args.rounds + 1)][1:]
        capabilities = browser.driver.capabilities
    seconds = {name: statistics.median(measured[name] for measured in rounds) for name in clocks}
    speeds = {name: f"{sum(map(len, texts)) / value:,.0f}" for name, value in seconds.items()}
    cells = [f"{speeds['scored']} ({speeds['plain']})"]
    for name in ("node", "chromium"):
        cells += [speeds[name], f"{seconds['scored'] / seconds[name]:.2f}, {seconds['plain'] / seconds[name]:.2f}"]
    version = capabilities["browserVersion"].partition(".")[0]
    return cells, [f"{starts:.2f}", f"{memory:.0f}"], f"Chromium {version}"


def measure_page(page: Path, args: argparse.Namespace) -> list[str]:
    """Return the seconds to the first entities, cold and warm."""
    rounds = []
    for _ in range(args.repeats):
        with started() as browser:
            times = []
            for _ in ("cold", "warm"):
                begin = time.perf_counter()
                browser.driver.get(page.as_uri())
                browser.wait(lambda browser=browser: browser.run(SHOWN), seconds=60)
                times.append(time.perf_counter() - begin)
            rounds.append(times)
    return [f"{statistics.median(column):.1f}" for column in zip(*rounds, strict=True)]


@contextmanager
def running(words: Sequence[object]) -> Iterator[Callable[[], str]]:
    """Start a process that prints a line, and one for each line of its input. Yields what returns the next."""
    with subprocess.Popen([*map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout

        def ask() -> str:
            process.stdin.write("\n")
            process.stdin.flush()
            return str(process.stdout.readline())

        yield ask
        process.kill()


@contextmanager
def host(folder: Path) -> Iterator[str]:
    """Yield the address of a host of the reader, of ONNX Runtime and of a folder."""
    places = {"reader": READERS, "ort": RUNTIME / "dist", "model": folder}

    class Handler(SimpleHTTPRequestHandler):
        def translate_path(self, path: str) -> str:
            name, _, below = path.strip("/").partition("/")
            return str(places[name] / below) if name in places else "/nothing"

        def log_message(self, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def cpu_of(task: Callable[[], object]) -> float:
    begin = time.process_time()
    task()
    return time.process_time() - begin


def cpu_of_browser(browser: Browser) -> float:
    """Return the CPU seconds of all processes of a browser while it reads the texts."""
    driver = browser.driver.service.process.pid
    begin = cpu_of_processes(driver)
    assert browser.driver.execute_async_script(READ) == ""
    return cpu_of_processes(driver) - begin


def cpu_of_processes(root: int) -> float:
    """Return the CPU seconds of a process and all below it."""
    parents, seconds = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(encoding="utf8").rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
        seconds[int(path.parent.name)] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    below = {root}
    for _ in parents:
        grown = below | {process for process, parent in parents.items() if parent in below}
        if grown == below:
            break
        below = grown
    return sum(seconds.get(process, 0.0) for process in below)


if __name__ == "__main__":
    main()
