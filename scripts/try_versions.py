"""Run the test suite with other versions of Python and of the dependencies, each in a separate environment.

The set `tested` contains the versions in constraints.txt. `oldest` contains the minimum versions in pyproject.toml,
with the newest versions of indirect dependencies. `newest` contains the newest versions of all packages. The tests run
on the last commit. The result is written as a row in research/results/versions.md, and replaces the row with the same
Python and set.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "research" / "results" / "versions.md"
SETS = {
    "tested": ["--constraint", "constraints.txt"],
    "oldest": ["--resolution", "lowest-direct"],
    "newest": [],
}
PRINT_VERSIONS = """
import platform
from importlib.metadata import version
print(platform.python_version())
for name in ("spacy", "thinc", "numpy", "torch", "transformers"):
    print(name, version(name))
"""
HEADING = "| Python | versions | with | date | closing line |\n| --- | --- | --- | --- | --- |\n"
TABLE = re.compile(re.escape(HEADING) + r"((?:\|.*\n)*)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pythons", nargs="+", help="interpreters, as python3.12")
    parser.add_argument("--sets", default="tested", help="some of tested, oldest and newest, separated by commas")
    parser.add_argument("--workers", default="auto", help="processes that run tests")
    parser.add_argument("--without", default="", help="packages left out, as one without a wheel for this Python")
    options = parser.parse_args()
    passed = True
    for python in options.pythons:
        for versions in options.sets.split(","):
            row, ok = try_versions(python, versions, options.workers, options.without)
            PAGE.write_text(add_row(PAGE.read_text(encoding="utf8"), row), encoding="utf8")
            print(row, flush=True)
            passed &= ok
    sys.exit(not passed)


def try_versions(python: str, versions: str, workers: str, without: str) -> tuple[str, bool]:
    """Run the test suite with a Python interpreter and a set of versions. Return the table row, and whether all tests
    passed."""
    with TemporaryDirectory() as folder:
        source, interpreter = Path(folder) / "source", Path(folder) / "env" / "bin" / "python"
        source.mkdir()
        archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "--extract"], cwd=source, input=archive, check=True)
        _uv(source, "venv", "--quiet", "--seed", "--python", python, str(interpreter.parents[1]))
        left_out = source / "without.txt"
        names = [name for name in without.split(",") if name]
        left_out.write_text("".join(f"{name}; python_version < '3'\n" for name in names), encoding="utf8")
        options = [*SETS[versions], "--overrides", str(left_out)]
        _uv(source, "pip", "install", "--quiet", "--python", str(interpreter), *options, "--editable", ".[dev]")
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        selected = "not slow and not gpu and not corpora"
        suite = ["-m", "pytest", "--quiet", "-m", selected, "--numprocesses", workers, "--dist", "worksteal"]
        process = subprocess.run(
            [interpreter, *suite], cwd=source, env=environment, stdout=subprocess.PIPE, check=False
        )
        output = process.stdout.decode()
        found = subprocess.run([interpreter, "-c", PRINT_VERSIONS], stdout=subprocess.PIPE, text=True, check=True)
    if process.returncode:
        print(output)
    number, *shown = found.stdout.splitlines()
    closing = output.strip().splitlines()[-1].strip("= ")
    extra = f"; without {', '.join(names)}" if names else ""
    return (
        f"| {number} | {versions} | {', '.join(shown)}{extra} | {date.today()} | `{closing}` |",
        not process.returncode,
    )


def add_row(page: str, row: str) -> str:
    """Insert a row into the page, or replace the row with the same Python and set."""
    first = [cell.strip() for cell in row.split("|")[1:3]]
    match = TABLE.search(page)
    if not match:
        raise ValueError(f"{PAGE.name} has no table of runs.")
    rest = [line for line in match[1].splitlines() if [cell.strip() for cell in line.split("|")[1:3]] != first]
    rows = "".join(f"{line}\n" for line in sorted([*rest, row]))
    return f"{page[: match.start(1)]}{rows}{page[match.end(1) :]}"


def _uv(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", *arguments], cwd=folder, check=True)


if __name__ == "__main__":
    main()
