"""Compare predictions with NumPy's default number of threads and with one thread, while other processes are busy.

env -u OMP_NUM_THREADS -u OPENBLAS_NUM_THREADS python research/benchmarks/predicting_threads.py
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import time

import _report
from spacy.language import Language
from threads import make_parser, make_pipeline

os.environ.pop("OMP_NUM_THREADS")  # importing `threads` sets it

SIZES = ((128, 1), (256, 2))
TEXTS = ((64, 32), (2, 1000), (1, 32))
NOTE = (
    "`nlp.pipe` with TENER on texts of random Chinese characters. Medians of {rounds} rounds, in which NumPy's choice, "
    "{cores} threads, and one thread take turns, beside {busy} processes that compute without end. Load: {load:.1f} "
    "processes on {cores} cores at the start: the machine was never free, and nothing is measured alone. "
    "Prediction uses one thread since. Limiting NumPy takes 0.01 ms a batch."
)


def main() -> None:
    parser = make_parser(__doc__, rounds=5, page="threads-predicting.md")
    parser.add_argument("--busy", type=int, default=2)
    args = parser.parse_args()
    load, rows = os.getloadavg()[0], []
    processes = [multiprocessing.Process(target=compute_forever, daemon=True) for _ in range(args.busy)]
    for process in processes:
        process.start()
    for width, layers in SIZES:
        nlp, *_ = make_pipeline(args.data, width, layers)
        for number, length in TEXTS:
            wall, cpu = time_turns(nlp, make_texts(number, length), args.rounds)
            rows.append([f"{layers} x {width}", f"{number} x {length}", *wall, *cpu])
    for process in processes:
        process.terminate()
    columns = [f"{clock}, {threads}" for clock in ("wall", "CPU") for threads in (os.cpu_count(), 1)]
    table = _report.table(["layers x width", "texts x characters", *columns], rows)
    note = NOTE.format(rounds=args.rounds, busy=args.busy, load=load, cores=os.cpu_count())
    _report.write(args.out, "Threads of a prediction", note, "Milliseconds, by number of threads:", table)


def make_texts(number: int, length: int) -> list[str]:
    return ["".join(chr(0x4E00 + (31 * text + 7 * i * i) % 3000) for i in range(length)) for text in range(number)]


def compute_forever() -> None:
    number = 1
    while True:
        number = 3 * number % 1_000_003


def time_turns(nlp: Language, texts: list[str], rounds: int) -> tuple[list[str], list[str]]:
    """Return the median wall time and CPU time in milliseconds, with NumPy's default number of threads and with one
    thread."""
    wall: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    list(nlp.pipe(texts))
    for _ in range(rounds):
        for i in range(2):
            if i == 0:
                # the package does not change a number of threads that was set by the user
                os.environ["OMP_NUM_THREADS"] = str(os.cpu_count())
            start = time.perf_counter(), time.process_time()
            list(nlp.pipe(texts))
            wall[i].append(time.perf_counter() - start[0])
            cpu[i].append(time.process_time() - start[1])
            os.environ.pop("OMP_NUM_THREADS", None)
    return tuple([f"{1000 * statistics.median(times):,.1f}" for times in kind] for kind in (wall, cpu))


if __name__ == "__main__":
    main()
