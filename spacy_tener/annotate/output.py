"""Run annotation jobs on files, and write the annotated records to Parquet or JSONL files.

The input is divided into parts, and each part is written to its own file in the output directory:

    OUTPUT/part-00000.parquet    annotated records
    OUTPUT/_manifest.json        the job's inputs and settings, and the number of texts and entities in each part
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spacy.util import get_package_path, is_package

from ..errors import UserError, check_choice, install, pluralize
from ..files import digest, locked, write_bytes, writing
from ..manifest import Manifest, file_input
from .annotator import Annotator
from .encoding import dump_jsonl
from .records import Part, ReadOptions, Source, parquet_columns, read_parts

if TYPE_CHECKING:
    import pyarrow as pa

OUTPUTS = PARQUET, JSONL = "parquet", "jsonl"
_LOCK = ".lock"


@dataclass(frozen=True)
class AnnotationJob:
    """An annotation job's inputs, settings and output directory.

    annotator (Annotator): The annotator, which holds the pipeline and its settings.
    sources (Sequence[Source]): The files to annotate.
    output (Path): The output directory.
    options (ReadOptions): Options for reading the files.
    format (str): Output format: "parquet" or "jsonl".
    processes (int): Number of worker processes. With 1, no process is started.
    """

    annotator: Annotator
    sources: Sequence[Source]
    output: Path
    options: ReadOptions
    format: str = PARQUET
    processes: int = 1

    def __post_init__(self) -> None:
        check_choice("output format", self.format, OUTPUTS)
        if self.processes < 1:
            raise UserError(f"processes must be at least 1, got {self.processes}", "Use a larger number.")
        if PARQUET in (self.format, *(source.format for source in self.sources)):
            try:
                import pyarrow  # noqa: F401
            except ImportError as error:
                fix = f"Run `{install('pyarrow')}`, or use --format jsonl."
                raise UserError("Parquet requires pyarrow, which is not installed", fix) from error

    @property
    def dependencies(self) -> dict[str, Any]:
        """All inputs and settings that determine the output.

        They are saved in the manifest. A job can only be resumed if they have not changed.
        """
        model = self.annotator.model
        weights = digest(get_package_path(model) if is_package(model) else Path(model))
        return {
            "model": file_input(model, weights),
            "code": file_input(self.annotator.code) if self.annotator.code else None,
            **asdict(self.annotator.settings),
            **asdict(self.options),
            "format": self.format,
            "inputs": [file_input(source.address, f"{source.size} {source.version}") for source in self.sources],
        }


@dataclass
class PartStats:
    """The number of texts, characters, entities and errors in one or more parts."""

    texts: int = 0
    characters: int = 0
    entities: int = 0
    errors: int = 0

    def __str__(self) -> str:
        texts, errors = pluralize(self.texts, "text"), pluralize(self.errors, "error")
        return f"{texts}, {pluralize(self.entities, 'entity', 'entities')}, {errors}"

    def __add__(self, stats: PartStats) -> PartStats:
        return PartStats(*map(sum, zip(asdict(self).values(), asdict(stats).values(), strict=True)))


@contextmanager
def open_output(job: AnnotationJob) -> Iterator[Manifest]:
    """Open a job's output directory, and yield its manifest.

    If the directory contains output from an earlier run, the job is resumed. While the directory is open, it is locked
    for other processes. Temporary files that a killed process left are deleted.
    """
    with locked(job.output / _LOCK):
        with writing(job.output):
            for temporary in job.output.glob(".*.tmp"):
                temporary.unlink(missing_ok=True)
        fix = "Use another output path, or delete this output to annotate all texts again."
        manifest = Manifest.resume(job.output, job.dependencies, fix=fix)
        try:
            yield manifest
        finally:
            manifest.save()


def part_name(job: AnnotationJob, number: int) -> str:
    """Return the output file name for an input part.

    number (int): Index of the part.
    """
    return f"part-{number:05}.{job.format}"


def read_job(job: AnnotationJob) -> tuple[pa.Schema | None, Iterator[Part]]:
    """Check a job's input, and read its first part.

    Raise an error if the input is empty or has no text column, or if an input column has the same name as an output
    column.

    RETURNS (tuple[pa.Schema | None, Iterator[Part]]): The Arrow schema for records that are not read from tables, and
        an iterator over all parts. The schema is inferred from the first part. It is None if the output format is
        JSONL, or if all inputs are tables.
    """
    settings = job.annotator.settings
    tables = [source for source in job.sources if source.format == "parquet"]
    for source in tables:
        settings.check_columns(parquet_columns(source))
    parts = read_parts(job.sources, job.options, settings.text)
    first = next(parts, None)
    if first is None:
        names = ", ".join(source.address for source in job.sources[:3])
        raise UserError(
            f"{names}: no texts were found", "Use files with one text on each line, or with a column of texts."
        )
    columns = first.columns
    settings.check_columns(columns)
    if settings.text not in columns:
        fix = f"Their columns are: {', '.join(columns) or 'none'}. Choose the column with --text."
        raise UserError(f"The records have no column '{settings.text}'", fix)
    first_rows: Part | None = first
    if tables and not first.readable:  # the first part has no valid records, so infer the schema from other files
        rows = [source for source in job.sources if source not in tables]
        first_rows = next(read_parts(rows, job.options, settings.text), None)
    return _schema_of(job, first_rows) if first_rows else None, chain([first], parts)


def _schema_of(job: AnnotationJob, part: Part) -> pa.Schema | None:
    if job.format != PARQUET or not part.rows:
        return None
    from .arrow import schema_of_rows

    return schema_of_rows(part.readable or part.rows, job.annotator.settings)


def write_part(job: AnnotationJob, part: Part, schema: pa.Schema | None) -> PartStats:
    """Annotate an input part, and write it to its output file.

    schema (pa.Schema | None): The Arrow schema that `read_job` returns.
    RETURNS (PartStats): The number of texts, entities and errors in the part.
    """
    settings, annotator = job.annotator.settings, job.annotator
    if job.format == PARQUET:
        import pyarrow as pa

        from .arrow import parquet_bytes, table_of_rows, values_of

        if part.rows:
            # Without a schema, all inputs are tables. The records then only report damaged files.
            table = table_of_rows(annotator(part.rows), schema or _schema_of(job, part), settings)
        else:
            table = annotator(pa.concat_tables(part.tables))
        texts = values_of(table[settings.text]) if settings.text in table.column_names else []
        entities, errors = (table[name].to_pylist() for name in (settings.entities, settings.error))
        content = parquet_bytes(table)
    else:
        rows = list(part.rows)
        if part.tables:
            from .arrow import rows_of_table

            rows = [row for table in part.tables for row in rows_of_table(table)]
        rows = annotator(rows)
        texts = [row.get(settings.text) for row in rows]
        entities, errors = ([row[name] for row in rows] for name in (settings.entities, settings.error))
        content = dump_jsonl(rows).encode()
    write_bytes(job.output / part_name(job, part.number), content)
    characters = sum(len(text) for text in texts if isinstance(text, str))
    return PartStats(len(errors), characters, sum(map(len, entities)), sum(error is not None for error in errors))
