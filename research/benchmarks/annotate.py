"""Benchmark `tener annotate` on a large archive: speed and memory compared with `nlp.pipe`, kill -9, and a full disk.

The archive is generated from raw texts. Run the benchmark on an idle machine. It needs Linux, since memory is measured
with `/proc`.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import _report

from spacy_tener.annotate.records import find_texts, stream_records

HERE = Path(__file__).parent
LONG = 100_000  # length of the longest texts in characters
LOOK = 0.5  # seconds between two measurements of the memory
TENTHS = 10
NOTE = (
    "`{model}`. {texts:,} texts made of raw ones, {characters:,} characters: nine of ten a paragraph, the others some "
    "paragraphs, one of 20,000 with {long:,} characters; one of 1,000 broken (empty, white space, half of a surrogate "
    "pair, no text, no JSON). JSONL in and out. One thread for each process; seconds on the clock, with the start of "
    "all processes. Memory is that of all processes together, what they share counted once (PSS), the highest in each "
    "tenth of the time."
)
KILLED = (
    "`kill -9` at {killed} random moments of {kills} (the others had finished); {torn} times a part was there that is "
    "none of the run that nobody stopped. The last call ended with status {status}, and its output is {equal} to that "
    "run's.\n"
)
FULL = (
    "On a tmpfs of {size:,} bytes the command ended with status {full} and {before} whole parts of {parts}; with more "
    "room, the same command ended with status {status}, and its output is {equal} to that of the run above.\n"
)
_TENTHS = [f"{10 * number + 10} %" for number in range(TENTHS)]
HEADER = ("", "seconds", "characters/s", "of two ideal cores", "highest MB", *_TENTHS)


@dataclass(frozen=True)
class Measurement:
    """The cost of a command.

    seconds: Wall time.
    memory: Repeated measurements of the memory, in megabytes.
    status: Exit status.
    """

    seconds: float
    memory: list[float]
    status: int

    @property
    def tenths(self) -> list[float]:
        """The maximum memory in each tenth of the run time."""
        edges = [len(self.memory) * n // TENTHS for n in range(TENTHS + 1)]
        return [max(self.memory[a : max(b, a + 1)], default=0.0) for a, b in itertools.pairwise(edges)]


def main() -> None:
    args = parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    archive = args.work / "texts.jsonl"
    characters = write_archive(archive, args)
    body = speeds(args, archive, characters)
    if args.kills:
        body += "\n## Killed\n\n" + killed(args, archive)
        body += "\n## A full disk\n\n" + full_disk(args, archive)
    facts = {"model": args.name or args.model, "texts": args.texts, "characters": sum(characters), "long": LONG}
    _report.write(args.out, "Archives", NOTE.format(**facts), body)


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path, help="directory of a trained pipeline")
    parser.add_argument("--name", help="what the page calls it")
    parser.add_argument("raw", nargs="+", help="what texts are made of: text, JSONL or .spacy, packed or not")
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1, help="how often all take turns; medians count")
    parser.add_argument("--kills", type=int, default=20, help="moments at which it is killed; 0: nor a full disk")
    parser.add_argument("--pipe-texts", type=int, help="how many of the first texts `nlp.pipe` reads; all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--part-size", type=int, default=10_000)
    parser.add_argument("--work", type=Path, default=Path("archive"), help="directory for texts and outputs")
    parser.add_argument("--out", type=Path, default=_report.RESULTS / "annotate.md")
    return parser.parse_args()


# The archive


def write_archive(path: Path, args: argparse.Namespace) -> list[int]:
    """Write the texts, which depend only on the seed. Return the number of characters of each text, or 0 for malformed
    texts."""
    rng, characters = random.Random(args.seed), [0] * args.texts
    sources, _ = find_texts(args.raw)
    paragraphs = [record["text"] for record in stream_records(sources)]
    with path.open("w", encoding="utf8") as file:
        for key in range(args.texts):
            if rng.random() < 0.001:
                file.write(broken(key, rng) + "\n")
                continue
            text = make_text(paragraphs, rng)
            characters[key] = len(text)
            file.write(json.dumps({"key": key, "text": text}, ensure_ascii=False) + "\n")
    return characters


def make_text(paragraphs: Sequence[str], rng: random.Random) -> str:
    draw = rng.random()
    if draw < 0.9:
        return rng.choice(paragraphs)
    if draw < 0.99995:
        return "\n".join(rng.choices(paragraphs, k=rng.randint(2, 10)))
    found, size = [], 0
    while size < LONG:
        found.append(rng.choice(paragraphs))
        size += len(found[-1]) + 1
    return "\n".join(found)[:LONG]


def broken(key: int, rng: random.Random) -> str:
    lines = [{"text": ""}, {"text": " \u3000\n"}, {"text": "王小明\ud800去了上海"}, {"body": "上海"}, None]
    line = rng.choice(lines)
    return json.dumps({"key": key, **line}) if line else f'{{"key": {key}, "text": "上海'


# Speed and memory


def command(args: argparse.Namespace, archive: Path, output: Path, processes: int) -> list[str]:
    options = ["-f", "jsonl", "--part-size", str(args.part_size), "--processes", str(processes)]
    return [
        sys.executable,
        "-m",
        "spacy",
        "tener",
        "annotate",
        str(args.model),
        str(archive),
        "-o",
        str(output),
        *options,
    ]


def speeds(args: argparse.Namespace, archive: Path, characters: Sequence[int]) -> str:
    single, double, few = args.work / "one", args.work / "two", args.pipe_texts or args.texts
    piped = (HERE / "_pipe.py", args.model, archive, args.work / "pipe.jsonl", 2, few)
    pipe = "`nlp.pipe(n_process=2)`" + (f", {few:,} texts" if few < args.texts else "")
    commands = {
        "`tener annotate`, 1 process": command(args, archive, single, 1),
        "`tener annotate`, 2 processes": command(args, archive, double, 2),
        pipe: [sys.executable, *map(str, piped)],
    }
    read = {name: sum(characters[: few if name == pipe else None]) for name in commands}
    ran: dict[str, list[Measurement]] = {name: [] for name in commands}
    for _ in range(args.rounds):
        for name, words in commands.items():
            for output in (single, double):
                if str(output) in words:
                    shutil.rmtree(output, ignore_errors=True)
            ran[name].append(run(words))
            print(f"{name}: {ran[name][-1].seconds:.0f} s, status {ran[name][-1].status}", flush=True)
    middle = {name: sorted(runs, key=lambda run: run.seconds)[len(runs) // 2] for name, runs in ran.items()}
    rate = {name: read[name] / result.seconds for name, result in middle.items()}
    ideal = 2 * rate["`tener annotate`, 1 process"]
    rows = [
        [
            name,
            f"{result.seconds:,.0f}",
            f"{rate[name]:,.0f}",
            f"{rate[name] / ideal:.2f}",
            f"{max(result.memory, default=0):,.0f}",
            *(f"{value:,.0f}" for value in result.tenths),
        ]
        for name, result in middle.items()
    ]
    same = "the same as" if parts(single) == parts(double) else "NOT THE SAME as"
    return f"{_report.table(HEADER, rows)}\n\nThe output of two processes is {same} that of one, byte by byte.\n"


def run(words: Sequence[str], within: float = float("inf")) -> Measurement:
    """Run a command and measure its memory at intervals. Commands that run longer than `within` seconds are killed."""
    memory: list[float] = []
    start = time.perf_counter()
    with subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=_report.one_thread()
    ) as process:
        while process.poll() is None:
            remaining = within - (time.perf_counter() - start)
            if remaining <= 0:
                process.kill()
            elif len(memory) * LOOK < time.perf_counter() - start:
                memory.append(sum(map(megabytes, family(process.pid))))
            with suppress(subprocess.TimeoutExpired):
                process.wait(min(LOOK, max(0.001, remaining)))
    return Measurement(time.perf_counter() - start, memory, process.returncode)


def family(pid: int) -> Iterator[int]:
    """Yield the ids of a process and all its descendants."""
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def megabytes(pid: int) -> float:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


# Stops


def parts(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("part-*"))}


def killed(args: argparse.Namespace, archive: Path) -> str:
    """Kill the command at random times, resume it, and compare the final output with the output of an uninterrupted
    run."""
    rng, output, complete = random.Random(args.seed), args.work / "killed", parts(args.work / "one")
    shutil.rmtree(output, ignore_errors=True)
    start = time.perf_counter()
    # all parts exist, so this run measures only the time for loading and reading
    run(command(args, archive, args.work / "two", 2))
    startup = time.perf_counter() - start
    stopped, torn = 0, 0
    for number in range(args.kills):
        ran = run(command(args, archive, output, 2), within=rng.uniform(0, startup + 20))
        stopped += ran.status == -9
        torn += not parts(output).items() <= complete.items()
        print(f"killed {number + 1}: {len(parts(output))} of {len(complete)} parts", flush=True)
    ended = run(command(args, archive, output, 2))
    equal = "equal" if parts(output) == complete else "NOT EQUAL"
    facts = {"killed": stopped, "kills": args.kills, "torn": torn, "status": ended.status, "equal": equal}
    return KILLED.format(**facts)


def full_disk(args: argparse.Namespace, archive: Path) -> str:
    """Write to a file system that is half as large as the output, then enlarge it and resume the command."""
    disk, complete = args.work / "disk", args.work / "one"
    size = sum(path.stat().st_size for path in complete.glob("part-*"))
    disk.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size // 2}", "tmpfs", str(disk)]
    if subprocess.run(mount, stderr=subprocess.DEVNULL).returncode:
        return "Not tried: no tmpfs may be mounted here. tests/annotate does it with a limit on the size of files.\n"
    try:
        full = run(command(args, archive, disk / "out", 2))
        before = parts(disk / "out")
        subprocess.run(["mount", "-o", f"remount,size={size * 2}", str(disk)], check=True)
        ended = run(command(args, archive, disk / "out", 2))
        equal = "equal" if parts(disk / "out") == parts(complete) else "NOT EQUAL"
        facts = {"size": size // 2, "full": full.status, "before": len(before), "parts": len(parts(complete))}
        return FULL.format(**facts, status=ended.status, equal=equal)
    finally:
        subprocess.run(["umount", str(disk)], check=False)


if __name__ == "__main__":
    main()
