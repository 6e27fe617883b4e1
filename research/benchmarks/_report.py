"""Shared functions of all benchmarks: command line parsers, timing, running commands, and writing pages of results.

Each page has a header with the date, the machine, the versions and the command.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TypeVar

from spacy.scorer import PRFScore

from spacy_tener.manifest import installed_versions

Task = TypeVar("Task", bound=Hashable)
# Index of the text, start and end in characters, and label.
Entity = tuple[int, int, int, str]
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "research" / "results"
sys.path.append(str(ROOT))  # research/ is not installed, and scripts are run from any directory


def today() -> str:
    return date.today().isoformat()


def machine() -> str:
    """Describe the cores, the memory and the GPU of this machine, without a host name."""
    return ", ".join([f"{os.cpu_count()} cores ({cpu_model()})", f"{memory_gb():.0f} GB RAM", gpu_model()])


def cpu_model() -> str:
    for line in _lines_of(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30


def gpu_model() -> str:
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        names = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        return "no GPU"
    return names[0].strip() or "no GPU"


def command() -> str:
    """Return the command line in a portable form, without directories of this machine."""
    return " ".join(["python", *(shlex.quote(_portable(argument)) for argument in sys.argv)])


def _portable(argument: str) -> str:
    name, equals, value = argument.rpartition("=")
    if not value.startswith("/"):
        return argument
    path = Path(value)
    inside = path.is_relative_to(Path.cwd())
    return name + equals + (str(path.relative_to(Path.cwd())) if inside else "/".join(path.parts[-2:]))


def _lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf8").splitlines() if path.exists() else []


def one_thread() -> dict[str, str]:
    """Return environment variables for a child process that computes on a single thread."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "BLIS_NUM_THREADS")
    return {**os.environ, **dict.fromkeys(names, "1")}


def pin(cpu: int) -> None:
    """Pin this process and its children to a core. With a negative number, they are not pinned."""
    if cpu >= 0 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})


def single_thread(cpu: int) -> None:
    """Restart this script with a single thread, and pin it to a core. The restart is necessary because libraries read
    the number of threads when they are imported."""
    environment = one_thread()
    if dict(os.environ) != environment:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    pin(cpu)


def pipelines_parser(description: str) -> argparse.ArgumentParser:
    """Create a parser for scripts that compare pipelines on the test set of a corpus. Parse its arguments with
    `parse_pipelines`."""
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("pipelines", nargs="+", help="NAME=DIRECTORY of a trained pipeline; the first is the measure")
    parser.add_argument("--corpus", required=True, help="directory under --data, and part of the default file name")
    parser.add_argument("--data", type=Path, required=True, help="holds CORPUS/{train,test}.spacy")
    parser.add_argument("--rounds", type=int, default=7, help="how often all take turns")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--cpu", type=int, default=-1, help="keep everything on this core")
    parser.add_argument("--out", type=Path, help="default: a page in research/results")
    return parser


def parse_pipelines(parser: argparse.ArgumentParser, page: str) -> argparse.Namespace:
    """Parse the arguments, and restart the script on a single thread.

    page: File name of the page, without the name of the corpus and the suffix.
    """
    args = parser.parse_args()
    args.out = args.out or RESULTS / f"{page}-{args.corpus}.md"
    single_thread(args.cpu)
    return args


def training_parser(description: str, data: str) -> argparse.ArgumentParser:
    """Create a parser for scripts that train pipelines, and that resume after an interruption.

    data: Description of the files in --data.
    """
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help=f"holds {data}")
    parser.add_argument("--work", type=Path, required=True, help="where pipelines are kept")
    return parser


def named_paths(arguments: Sequence[str]) -> dict[str, Path]:
    """Parse `NAME=DIRECTORY` arguments. The order is preserved."""
    pairs = [argument.partition("=") for argument in arguments]
    wrong = [argument for argument, (_, _, path) in zip(arguments, pairs, strict=True) if not Path(path).is_dir()]
    if wrong:
        raise SystemExit(f"Expected NAME=DIRECTORY of a trained pipeline, but got: {', '.join(wrong)}")
    return {name: Path(path) for name, _, path in pairs}


def take_turns(
    tasks: Mapping[Task, Callable[[], object]],
    rounds: int | Mapping[Task, int],
    *,
    warm_up: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> dict[Task, list[float]]:
    """Measure the seconds of each task in each round. All tasks run once in every round, after some warm-up rounds.

    rounds: Number of rounds, for all tasks or for each task.
    clock: Function that returns the time in seconds. The default measures CPU time, which does not include time spent
        waiting for other processes.
    """
    seconds: dict[Task, list[float]] = {name: [] for name in tasks}
    of_task = dict.fromkeys(tasks, rounds) if isinstance(rounds, int) else rounds
    for turn in range(warm_up + max(of_task.values())):
        for name, task in tasks.items():
            if turn < warm_up + of_task[name]:
                start = clock()
                task()
                seconds[name].append(clock() - start)
    return {name: measured[warm_up:] for name, measured in seconds.items()}


def median_seconds(
    tasks: Mapping[Task, Callable[[], object]],
    rounds: int | Mapping[Task, int],
    *,
    warm_up: int = 1,
    clock: Callable[[], float] = time.process_time,
) -> dict[Task, float]:
    """Return the medians of `take_turns`."""
    seconds = take_turns(tasks, rounds, warm_up=warm_up, clock=clock)
    return {name: statistics.median(times) for name, times in seconds.items()}


def tener(*arguments: object, stdout: int | None = None) -> str:
    """Run a command of `spacy tener`.

    stdout: As in `subprocess.run`. With `subprocess.PIPE`, the output is returned.
    """
    return spacy_command("tener", *arguments, stdout=stdout)


def spacy_command(*arguments: object, stdout: int | None = None) -> str:
    """Run a command of `spacy`. `stdout` is the same as in `tener`."""
    return _run(["spacy", *map(str, arguments)], stdout)


def research(*arguments: object, stdout: int | None = None) -> str:
    """Run a command of `python -m research`. `stdout` is the same as in `tener`."""
    return _run(["research", *map(str, arguments)], stdout)


def _run(arguments: Sequence[str], stdout: int | None) -> str:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**one_thread(), "PYTHONPATH": path}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, check=True, stdout=stdout, encoding="utf8", env=environment).stdout or ""


def scores(runs: Sequence[Path], baseline: str | None, *options: object) -> tuple[str, str]:
    """Return the table of `research table` for some runs, and its explanatory note. With a baseline, the table contains
    differences and p-values."""
    beside = ("--baseline", baseline) if baseline else ()
    form = (*beside, "--no-published", "--format", "md")
    said = research("table", *runs, *form, *options, stdout=subprocess.PIPE)
    _, found, meaning = said.strip().split("\n\n")
    return found, meaning


def overrides(*settings: str, steps: int | None = None) -> list[str]:
    """Convert settings to `--set` options of `research grid`.

    steps: Number of training steps, if it should be changed.
    """
    if steps is not None:
        settings = (*settings, f"training.max_steps={steps}")
    return [part for setting in settings for part in ("--set", setting)]


def mean_sd(values: Sequence[float], digits: int = 1) -> str:
    if len(values) < 2:
        return "".join(f"{value:.{digits}f}" for value in values)
    return f"{statistics.mean(values):.{digits}f} ± {statistics.stdev(values):.{digits}f}"


def prf(gold: set[Entity], found: set[Entity]) -> list[float]:
    """Return precision, recall and F1 in percent."""
    scores = PRFScore()
    scores.score_set(found, gold)
    return [100 * value for value in (scores.precision, scores.recall, scores.fscore)]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write_tables(path: Path, title: str, *parts: tuple[str, Sequence[str], Sequence[Sequence[str]]]) -> None:
    """Write a page of tables.

    parts: For each table, a note, the header and the rows.
    """
    write(path, title, *(part for note, header, rows in parts for part in (note, table(header, rows))))


def write(path: Path, title: str, *parts: str) -> None:
    """Write a page: the title, the header, and some paragraphs or tables."""
    versions = ", ".join(f"{package} {version}" for package, version in installed_versions().items())
    header = f"{today()}. {machine()}. {versions}.\n\n    {command()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n\n".join([f"# {title}", header, *parts]) + "\n", encoding="utf8")
    print(f"Written to {path}", flush=True)
