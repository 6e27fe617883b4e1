"""Compare the time of a training step with 1, 2 and 16 threads, for TENER of several sizes and several batch sizes.

python research/benchmarks/threads.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

# The package does not change a number of threads that is set here, so that each row has the number in its heading.
os.environ["OMP_NUM_THREADS"] = str(os.cpu_count())

import _report
import spacy
import torch
from spacy.language import Language
from spacy.training import Corpus, Example
from thinc.api import Adam

THREADS = (1, 2, 16)
SIZES = ((64, 1), (128, 1), (256, 2), (512, 4))
BATCHES = (16, 64)
NOTE = (
    "`nlp.update` of `tener_ner` with TENER on texts of the sample corpus, {characters:.0f} characters each. Medians "
    "of {rounds} steps, in which all numbers of threads take turns. Weights are those of dense parameters. Load: "
    "{load:.1f} processes on {cores} cores at the start. Wall seconds under load are those of a busy machine; CPU "
    "seconds say what threads cost that wait for each other. From these numbers `layers/devices.py` has its rule: a "
    "thread for each 2^32 products of a weight and a unit of the batch, at least one, so one in all rows but the last."
)


def main() -> None:
    args = make_parser(__doc__, rounds=3, page="threads.md").parse_args()
    load, rows, characters = os.getloadavg()[0], [], 0.0
    for width, layers in SIZES:
        nlp, examples, weights = make_pipeline(args.data, width, layers)
        characters = statistics.mean(len(example.reference.text) for example in examples)
        for batch in BATCHES:
            seconds = time_steps(nlp, examples[:batch], args.rounds)
            kinds = zip(*seconds, strict=True)
            columns = [f"{1000 * statistics.median(times):,.0f}" for kind in kinds for times in kind]
            rows.append([f"{layers} x {width}", f"{weights / 1e6:.2f}", str(batch), *columns])
    columns = [f"{clock}, {threads}" for clock in ("wall", "CPU") for threads in THREADS]
    table = _report.table(["layers x width", "weights, millions", "texts", *columns], rows)
    note = NOTE.format(characters=characters, rounds=args.rounds, load=load, cores=os.cpu_count())
    _report.write(args.out, "Threads of a training step", note, "Milliseconds, by number of threads:", table)


def make_parser(description: str, *, rounds: int, page: str) -> argparse.ArgumentParser:
    """Create a parser for scripts that compare numbers of threads."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--data", type=Path, default=_report.ROOT / "corpus" / "train.spacy")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / page)
    return parser


def make_pipeline(data: Path, width: int, layers: int) -> tuple[Language, list[Example], int]:
    """Return an initialized pipeline, its training examples, and the number of its weights without embedding tables."""
    nlp = spacy.blank("zh")
    tok2vec = {"@architectures": "spacy_tener.TENER.v1", "width": width, "layers": layers}
    model = {"@architectures": "spacy_tener.CRFTagger.v1", "tok2vec": tok2vec}
    pipe = nlp.add_pipe("tener_ner", config={"model": model})
    examples = list(Corpus(data)(nlp))
    nlp.initialize(lambda: examples)
    modules = [shim.module for node in pipe.model.walk() for shim in node.shims]
    sizes = [part.numel() for module in modules for name, part in module.named_parameters() if "tables" not in name]
    return nlp, examples, sum(sizes)


def time_steps(nlp: Language, examples: list[Example], rounds: int) -> list[tuple[list[float], list[float]]]:
    """Return wall time and CPU time of training steps in seconds, for each number of threads."""
    optimizer = Adam(0.001)
    seconds: list[tuple[list[float], list[float]]] = [([], []) for _ in THREADS]
    for number in range(rounds + 1):
        for threads, (wall, cpu) in zip(THREADS, seconds, strict=True):
            torch.set_num_threads(threads)
            start = time.perf_counter(), time.process_time()
            nlp.update(examples, sgd=optimizer)
            if number:
                wall.append(time.perf_counter() - start[0])
                cpu.append(time.process_time() - start[1])
    return seconds


if __name__ == "__main__":
    main()
