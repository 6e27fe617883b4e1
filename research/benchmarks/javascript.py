"""Compare exported ONNX files in Node and Chromium with their pipelines: speed, start-up time, memory and sizes."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

import _report
import spacy
from speed import pipe_all, read_texts

from spacy_tener.export.onnx_model import describe, export_model, find_tagger
from spacy_tener.export.page import make_model_page, read_runtime

sys.path.append(str(_report.ROOT / "tests"))

from browser import Browser, open_browser

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
    "A long text that is pasted into the page, which reads it in pieces and shows its progress: seconds until the "
    "entities are shown; the longest time in which the page answers to nothing; and memory of all processes of the "
    "browser, before and at most, looked at each second. Memory that processes share counts once.",
)
HEADERS = (
    ("pipeline", "nlp.pipe, chars/s", "Node, chars/s", "ratio", "Chromium, chars/s", "ratio"),
    ("pipeline", "Node, s", "page cold, s", "page warm, s", "memory, MB", "file, MB", "page, MB", "page --half, MB"),
    ("pipeline", "characters", "entities", "shown after, s", "longest pause, s", "memory before, MB", "highest, MB"),
)
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
PASTE = """
window.pauses = [], window.begin = performance.now();
let last = begin;
setInterval(() => { const now = performance.now(); pauses.push(now - last); last = now; }, 20);
const working = document.getElementById("working"), input = document.getElementById("input");
new MutationObserver(() => { window.seconds = working.textContent ? null : (performance.now() - begin) / 1000; })
    .observe(working, { childList: true });
input.value = arguments[0];
input.dispatchEvent(new Event("input", { bubbles: true }));
"""
SHOWN = "return document.querySelectorAll('#text .ent').length"


def main() -> None:
    args = parse_args()
    texts = read_texts(args.data / args.corpus / "test.spacy")
    speed, costs, long, chromium = [], [], [], ""
    for name, path in _report.named_paths(args.pipelines).items():
        with TemporaryDirectory() as folder:
            nlp, page = spacy.load(path), Path(folder, "page.html")
            write_files(nlp, Path(folder))
            cells, first, chromium = measure_speed(nlp, path, Path(folder), texts, args)
            speed.append([name, *cells])
            costs.append([name, first[0], *measure_page(page, args), first[1], *sizes(Path(folder))])
            long += [[name, *measure_long_text(page, texts, size)] for size in (args.size, args.pasted)]
    numbers = {
        "n_texts": len(texts),
        "n_characters": sum(map(len, texts)),
        "node": subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()[1:],
        "runtime": json.loads((RUNTIME / "package.json").read_text(encoding="utf8"))["version"],
        "chromium": chromium,
    }
    tables = zip([note.format(**vars(args), **numbers) for note in NOTES], HEADERS, (speed, costs, long), strict=True)
    _report.write_tables(args.out, f"Exported files in Node and in Chromium: {args.corpus}", *tables)


def parse_args() -> argparse.Namespace:
    parser = _report.pipelines_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=int, default=100_000, help="characters of the long text")
    parser.add_argument("--pasted", type=int, default=1_000_000, help="characters that are pasted into the page")
    return _report.parse_pipelines(parser, "javascript")


def write_files(nlp: Any, folder: Path) -> None:
    """Write the exported file and the HTML page of a pipeline, each with weights in float32 and in float16."""
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
    """Return the cells for speed, the cells for Node's start-up time and memory, and the browser's name."""
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
    with running(words) as node, open_browser() as browser, host(folder) as url:
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
    """Return the seconds until the first entities are shown, in a new browser (cold) and after reloading (warm)."""
    rounds = []
    for _ in range(args.repeats):
        with open_browser() as browser:
            times = []
            for _ in ("cold", "warm"):
                begin = time.perf_counter()
                browser.driver.get(page.as_uri())
                browser.wait(lambda browser=browser: browser.run(SHOWN), seconds=60)
                times.append(time.perf_counter() - begin)
            rounds.append(times)
    return [f"{statistics.median(column):.1f}" for column in zip(*rounds, strict=True)]


def measure_long_text(page: Path, texts: Sequence[str], size: int) -> list[str]:
    """Return the cells for a text of `size` characters that is pasted into the page."""
    joined = "\n".join(texts) + "\n"
    with open_browser() as browser:
        driver = browser.driver.service.process.pid
        browser.open(page.as_uri())
        browser.wait(lambda: browser.run(SHOWN), seconds=120)
        before = highest = megabytes_of_processes(driver)
        browser.run(PASTE, (joined * (size // len(joined) + 1))[:size])
        while (seconds := browser.run("return window.seconds")) is None:
            highest = max(highest, megabytes_of_processes(driver))
            time.sleep(1)
        time.sleep(1)
        highest, pauses = max(highest, megabytes_of_processes(driver)), browser.run("return pauses")
        numbers = (size, browser.run(SHOWN), seconds, max(pauses) / 1000, before, highest)
    return [f"{number:,.{digits}f}" for number, digits in zip(numbers, (0, 0, 1, 1, 0, 0), strict=True)]


@contextmanager
def running(words: Sequence[object]) -> Iterator[Callable[[], str]]:
    """Start a process that prints one line, and then one more line for each line of input. Yield a function that
    returns the next line."""
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
    """Serve the reader, ONNX Runtime and a folder by HTTP. Yield the URL."""
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
    """Return the CPU time of all processes of the browser for the texts, in seconds."""
    driver = browser.driver.service.process.pid
    begin = cpu_of_processes(driver)
    assert browser.driver.execute_async_script(READ) == ""
    return cpu_of_processes(driver) - begin


def cpu_of_processes(root: int) -> float:
    """Return the CPU time of a process and its descendants, in seconds."""
    ticks = sum(int(fields[11]) + int(fields[12]) for fields in processes_below(root).values())
    return ticks / os.sysconf("SC_CLK_TCK")


def megabytes_of_processes(root: int) -> float:
    """Return the memory of a process and its descendants in megabytes. Shared memory is divided between processes
    (PSS)."""
    kilobytes = 0
    for process in processes_below(root):
        with suppress(OSError):
            lines = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="utf8").splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1024


def processes_below(root: int) -> dict[int, list[str]]:
    """Return the fields of `/proc/PID/stat` after the name, for a process and its descendants."""
    fields = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            fields[int(path.parent.name)] = path.read_text(encoding="utf8").rpartition(")")[2].split()
    below = {root}
    while grown := {process for process, (_, parent, *_) in fields.items() if int(parent) in below} - below:
        below |= grown
    return {process: fields[process] for process in below & fields.keys()}


if __name__ == "__main__":
    main()
