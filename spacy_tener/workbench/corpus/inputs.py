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

from ...errors import InputError
from ...inputs import COMPRESSED, STDIN, suffix_of, walk
from .brat import ANNOTATIONS, is_brat

OUTPUT_SUFFIX = ".spacy"
_FORMAT_SUFFIXES = frozenset(
    {".txt", ".tsv", ".conll", ".conllu", ".ner", ".bio", ".iob", ".iob1", ".iob2"}
    | {".bioes", ".bmes", ".bilou", ".char", ".word", ".jsonl", ".json", ANNOTATIONS}
    | {".gold_conll", ".v4_gold_conll", ".v9_gold_conll"}
)
# Endings that corpora have, and that tell their parts apart.
_PART_SUFFIXES = frozenset({".train", ".dev", ".valid", ".test", ".testa", ".testb", ".annotated"})


@dataclass(frozen=True)
class Job:
    """Inputs, each a file or `-`, and the file to write them to.

    found: the inputs that nobody named: a directory has them.
    """

    sources: tuple[str, ...]
    output: Path
    found: frozenset[str] = frozenset()

    @property
    def source(self) -> str:
        """What to call the inputs."""
        first, *others = self.sources
        return f"{first} and {len(others)} more" if others else first


def plan_jobs(
    inputs: Sequence[str | Path], output: str | Path, *, glob: str | None = None, join: bool = False
) -> tuple[list[Job], list[Path]]:
    """The jobs that some files, directories and `-` make, and the files in the directories that are no corpora.

    glob: The files to take from directories (`*.bmes`); by default those with an ending known from corpora.
    join: Write all inputs into one file, in their order.
    """
    output = Path(output)
    sources: list[tuple[str, PurePath]] = []
    found: list[str] = []
    left_out: list[Path] = []
    for each in inputs:
        if str(each) != STDIN and Path(each).is_dir():
            taken, other = _corpora(Path(each), glob)
            sources += [(str(path), path.relative_to(each)) for path in taken]
            found += map(str, taken)
            left_out += other
        elif Path(each).suffix == OUTPUT_SUFFIX:
            raise InputError(
                str(each), "is a .spacy file already", "Name the corpus in another format, or use it as is."
            )
        else:
            sources.append((str(each), PurePath("stdin" if str(each) == STDIN else Path(each).name)))
    return _jobs(sources, output, frozenset(found), join=join), left_out


def output_name(name: PurePath) -> PurePath:
    """The name that an input's output has by default."""
    while name.suffix in _FORMAT_SUFFIXES or name.suffix in COMPRESSED:
        name = name.with_suffix("")
    return name.with_name(name.name + OUTPUT_SUFFIX)


def _jobs(sources: list[tuple[str, PurePath]], output: Path, found: frozenset[str], *, join: bool) -> list[Job]:
    names_file = output.suffix == OUTPUT_SUFFIX and not output.is_dir()
    if join and not names_file:
        raise InputError(str(output), "joined inputs make one file", f"Name a file that ends in {OUTPUT_SUFFIX}.")
    if names_file:
        if len(sources) != 1 and not join:
            remedy = "Name a directory as the output, or join the inputs (--join)."
            raise InputError(str(output), f"one output for {len(sources)} inputs", remedy)
        return [Job(tuple(source for source, _ in sources), output, found)]
    if output.exists() and not output.is_dir():
        raise InputError(str(output), "not a directory", "Name a directory, or a file that ends in .spacy.")
    jobs = [Job((source,), output / output_name(name), found) for source, name in sources]
    _check_distinct(jobs)
    return jobs


def _check_distinct(jobs: Iterable[Job]) -> None:
    writers: dict[Path, str] = {}
    for job in jobs:
        if job.output in writers:
            reason = f"both {writers[job.output]} and {job.source} would be written to {job.output}"
            remedy = "Convert them one by one, with outputs named `NAME.spacy`."
            raise InputError(job.source, reason, remedy)
        writers[job.output] = job.source


def _corpora(directory: Path, glob: str | None) -> tuple[list[Path], list[Path]]:
    """The corpora below a directory and the other files."""
    taken, other = walk(directory, lambda path: path.match(glob) if glob else _is_corpus(path))
    if not taken:
        remedy = "Choose its corpora by name, as in `--glob '*.bmes'`."
        raise InputError(str(directory), f"no corpus among its {len(other)} files", remedy)
    return taken, [path for path in other if not is_brat(path)]


def _is_corpus(path: Path) -> bool:
    # Of brat's pairs the annotations stand for both.
    is_text_of_brat = is_brat(path) and path.suffix != ANNOTATIONS
    return suffix_of(path) in _FORMAT_SUFFIXES | _PART_SUFFIXES and not is_text_of_brat
