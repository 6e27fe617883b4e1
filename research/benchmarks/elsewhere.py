"""Compare exported ONNX files, used without spaCy in Python, with their pipelines: entities, speed, start-up and
memory."""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import _report
import spacy
from spacy.language import Language
from speed import call_each, pipe_all, read_texts
from start import WITHOUT_TRANSFORMERS

from spacy_tener.export.onnx_model import export_model
from spacy_tener.pipeline.finding import SCORES_KEY, probability_config

READER = _report.ROOT / "readers" / "python"
SHORT = "吴重阳在中国银行工作，王小明去了上海。"
NOTES = (
    "The test part of {corpus}: {n_texts} texts, {n_characters:,} characters, alone and in batches of {batch_size}. "
    "The reader is `readers/python/tener_reader.py`, which always computes probabilities.",
    "One thread; all take turns within each of {rounds} rounds. Medians, in CPU time. The ratio is to the pipeline "
    "with probabilities and without them; above 1 is faster.",
    "Fresh processes, medians of {repeats}: the pipeline where torch is not installed, the reader in an environment of "
    "numpy and onnxruntime alone, which has {megabytes:.0f} MB with pip. Start: from the start of Python to the first "
    "text's entities. Memory: the highest resident size while a text of {size:,} characters is read, over that before.",
)
HEADERS = (
    ("pipeline", "file, MB", "entities of both", "texts with others", "largest difference of a probability"),
    ("pipeline", "nlp.pipe, chars/s", "reader.batch", "ratio", "nlp(text), ms", "reader.entities, ms", "ratio"),
    ("pipeline", "start, s", "reader's", "memory, MB", "reader's", "long text, s", "reader's"),
)
LOAD_PIPELINE = f"""
sys.modules["torch"] = None
{WITHOUT_TRANSFORMERS}
import spacy
read = spacy.load(source)
"""
LOAD_READER = """
sys.path.insert(0, sys.argv[3])
import tener_reader
read = tener_reader.load(source, threads=1).entities
"""
BEGIN = """
import json, sys, time
begin = time.perf_counter()
source, short = sys.argv[1:3]
"""
MEASURE = """
read(short)
start = time.perf_counter() - begin
from pathlib import Path
def megabytes(field):
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field + ":")) / 1024
text = sys.stdin.buffer.read().decode("utf8")
Path("/proc/self/clear_refs").write_text("5", "ascii")
before, begin = megabytes("VmRSS"), time.perf_counter()
read(text)
print(json.dumps([start, megabytes("VmHWM") - before, time.perf_counter() - begin]))
"""
sys.path.append(str(READER))


def main() -> None:
    args = parse_args()
    texts = read_texts(args.data / args.corpus / "test.spacy")
    long = "".join(texts) * (args.size // sum(map(len, texts)) + 1)
    same, speed, costs = [], [], []
    for name, path in _report.named_paths(args.pipelines).items():
        with TemporaryDirectory() as folder:
            nlp, file = spacy.load(path), Path(folder, "ner.onnx")
            file.write_bytes(export_model(nlp).SerializeToString())
            same.append([name, f"{file.stat().st_size / 1e6:.1f}", *compare(nlp, file, texts, args.batch_size)])
            speed.append([name, *measure_speed(nlp, file, texts, args)])
            costs.append([name, *measure_costs((path, file), long[: args.size], args)])
    size = sum(path.lstat().st_size for path in args.environment.rglob("*") if path.is_file() and not path.is_symlink())
    numbers = {"n_texts": len(texts), "n_characters": sum(map(len, texts)), "megabytes": size / 2**20}
    tables = zip([note.format(**vars(args), **numbers) for note in NOTES], HEADERS, (same, speed, costs), strict=True)
    _report.write_tables(args.out, f"Exported files in Python without spaCy: {args.corpus}", *tables)


def parse_args() -> argparse.Namespace:
    parser = _report.pipelines_parser(__doc__)
    parser.add_argument("--environment", type=Path, required=True, help="numpy and onnxruntime are installed there")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--size", type=int, default=100_000, help="characters of the long text")
    return _report.parse_pipelines(parser, "elsewhere")


def load_reader(file: Path) -> Any:
    import tener_reader

    return tener_reader.load(file, threads=1)


def read_batches(reader: Any, texts: Sequence[str], size: int) -> list[Any]:
    batches = (texts[start : start + size] for start in range(0, len(texts), size))
    return [entities for batch in batches for entities in reader.batch(batch)]


def compare(nlp: Language, file: Path, texts: Sequence[str], size: int) -> list[str]:
    """Compare the entities of the reader and the pipeline. Return the number of common entities, the number of texts
    with differences, and the maximum difference between probabilities."""
    reader, n_same, differing, difference = load_reader(file), 0, 0, 0.0
    docs, key = nlp.pipe(texts, component_cfg=probability_config(nlp)), nlp.get_pipe("tener_ner").settings.spans_key
    for doc, together, alone in zip(docs, read_batches(reader, texts, size), map(reader.entities, texts), strict=True):
        group = doc.spans[key or SCORES_KEY]
        expected = dict(zip(((e.start_char, e.end_char, e.label_) for e in group), group.attrs["scores"], strict=True))
        for found in (together, alone):
            scores = {(e["start"], e["end"], e["label"]): e["probability"] for e in found}
            shared = expected.keys() & scores.keys()
            differing += expected.keys() != scores.keys()
            difference = max([difference, *(abs(expected[span] - scores[span]) for span in shared)])
        n_same += len(shared)
    return [f"{n_same:,}", str(differing), f"{difference:.0e}"]


def measure_speed(nlp: Language, file: Path, texts: Sequence[str], args: argparse.Namespace) -> list[str]:
    reader, scored = load_reader(file), spacy.load(nlp.path)
    scored.get_pipe("tener_ner").cfg["spans_key"] = "sc"
    size, n_characters = args.batch_size, sum(map(len, texts))
    together = {
        "scored": partial(pipe_all, scored, texts, size),
        "plain": partial(pipe_all, nlp, texts, size),
        "reader": partial(read_batches, reader, texts, size),
    }
    alone = {
        "scored": partial(call_each, scored, texts),
        "plain": partial(call_each, nlp, texts),
        "reader": lambda: [reader.entities(text) for text in texts],
    }
    batched, single = (_report.median_seconds(tasks, args.rounds) for tasks in (together, alone))
    cells = []
    for seconds, show in (
        (batched, lambda seconds: f"{n_characters / seconds:,.0f}"),
        (single, lambda seconds: f"{1000 * seconds / len(texts):.2f}"),
    ):
        scored_time, plain, read = seconds.values()
        cells += [f"{show(scored_time)}, {show(plain)} without", show(read)]
        cells.append(f"{scored_time / read:.2f}, {plain / read:.2f}")
    return cells


def measure_costs(sources: Sequence[Path], text: str, args: argparse.Namespace) -> list[str]:
    """Return the start-up time, the memory, and the time for a long text, first for the pipeline and then for the
    reader."""
    measured: list[list[list[float]]] = [[], []]
    for _ in range(args.repeats):
        for source, rounds in zip(sources, measured, strict=True):
            is_file = source.suffix == ".onnx"
            python = args.environment / "bin" / "python" if is_file else sys.executable
            code = BEGIN + (LOAD_READER if is_file else LOAD_PIPELINE) + MEASURE
            command = [str(python), "-c", code, str(source), SHORT, str(READER)]
            ran = subprocess.run(command, input=text.encode(), stdout=subprocess.PIPE, check=True)
            rounds.append(json.loads(ran.stdout))
    columns = zip(*(map(statistics.median, zip(*rounds, strict=True)) for rounds in measured), strict=True)
    return [f"{value:.{digits}f}" for values, digits in zip(columns, (2, 0, 1), strict=True) for value in values]


if __name__ == "__main__":
    main()
