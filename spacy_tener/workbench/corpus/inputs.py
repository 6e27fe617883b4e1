"""Which files to read, and which to write them to.

An output is named after its input: `train.char.bmes` becomes `train.spacy`. Only endings that name a format are taken
off, so that the names of `x.train` and `x.dev` stay apart (`x.train.spacy`), whether they are converted together or
one by one. An output that ends in `.spacy` names the file itself, of one input or of several joined. Files in a
directory keep their place below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from .lines import COMPRESSED, STDIN
from .records import CorpusError

OUTPUT_SUFFIX = ".spacy"
_FORMAT_SUFFIXES = frozenset(
    {".txt", ".tsv", ".conll", ".ner", ".bio", ".iob", ".iob1", ".iob2"}
    | {".bioes", ".bmes", ".bilou", ".char", ".word", ".jsonl", ".json"}
    | {".gold_conll", ".v4_gold_conll", ".v9_gold_conll"}
)
# Endings that corpora have, and that tell their parts apart.
_PART_SUFFIXES = frozenset({".train", ".dev", ".valid", ".test", ".testa", ".testb", ".annotated"})


@dataclass(frozen=True)
class Job:
    """Inputs, each a file or `-`, and the file to write them to."""

    sources: tuple[str, ...]
    output: Path

    @property
    def source(self) -> str:
        """What to call the inputs."""
        first, *others = self.sources
        return f"{first} and {len(others)} more" if others else first


def plan(
    inputs: Sequence[str | Path], output: str | Path, *, glob: str | None = None, join: bool = False
) -> tuple[list[Job], list[Path]]:
    """The jobs that some files, directories and `-` make, and the files in the directories that are no corpora.

    glob: The files to take from directories (`*.bmes`); by default those with an ending known from corpora.
    join: Write all inputs into one file, in their order.
    """
    output = Path(output)
    sources: list[tuple[str, PurePath]] = []
    left_out: list[Path] = []
    for each in inputs:
        if str(each) != STDIN and Path(each).is_dir():
            taken, other = _walk(Path(each), glob)
            sources += [(str(path), path.relative_to(each)) for path in taken]
            left_out += other
        else:
            sources.append((str(each), PurePath("stdin" if str(each) == STDIN else Path(each).name)))
    return ([_joined(sources, output)] if join else _jobs(sources, output)), left_out


def output_name(name: PurePath) -> PurePath:
    """The name that an input's output has by default."""
    while name.suffix in _FORMAT_SUFFIXES or name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.with_name(name.name + OUTPUT_SUFFIX)


def _joined(sources: list[tuple[str, PurePath]], output: Path) -> Job:
    if output.suffix != OUTPUT_SUFFIX or output.is_dir():
        raise CorpusError(str(output), "joined inputs make one file", f"Name a file that ends in {OUTPUT_SUFFIX}.")
    return Job(tuple(source for source, _ in sources), output)


def _jobs(sources: list[tuple[str, PurePath]], output: Path) -> list[Job]:
    if output.suffix == OUTPUT_SUFFIX and not output.is_dir():
        if len(sources) != 1:
            remedy = "Name a directory as the output, or join the inputs (--join)."
            raise CorpusError(str(output), f"one output for {len(sources)} inputs", remedy)
        return [_joined(sources, output)]
    if output.exists() and not output.is_dir():
        raise CorpusError(str(output), "not a directory", "Name a directory, or a file that ends in .spacy.")
    jobs = [Job((source,), output / output_name(name)) for source, name in sources]
    _check_distinct(jobs)
    return jobs


def _check_distinct(jobs: Iterable[Job]) -> None:
    writers: dict[Path, str] = {}
    for job in jobs:
        if job.output in writers:
            reason = f"both {writers[job.output]} and {job.source} would be written to {job.output}"
            remedy = "Convert them one by one, with outputs named `NAME.spacy`."
            raise CorpusError(job.source, reason, remedy)
        writers[job.output] = job.source


def _walk(directory: Path, glob: str | None) -> tuple[list[Path], list[Path]]:
    """The corpora below a directory and the other files, both sorted; hidden ones are neither."""
    files = [
        path
        for path in sorted(directory.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(directory).parts)
    ]
    taken = [path for path in files if (path.match(glob) if glob else _is_corpus(path))]
    if not taken:
        remedy = "Choose its corpora by name, as in `--glob '*.bmes'`."
        raise CorpusError(str(directory), f"no corpus among its {len(files)} files", remedy)
    return taken, sorted(set(files) - set(taken))


def _is_corpus(path: Path) -> bool:
    suffix = path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix
    return suffix in _FORMAT_SUFFIXES or suffix in _PART_SUFFIXES
