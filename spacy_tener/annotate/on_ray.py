"""Archives on many machines, by Ray Data: tasks read files, and actors that hold the pipeline once each annotate and
write their parts. Ray places them, feeds them no faster than they work, and does again what a lost node had begun.
What is written, and how the same call goes on, is as on one machine.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster import connected, explained, work_in
from .local.engine import Done, check_text
from .local.job import Job
from .local.making import make
from .reading.addresses import Source
from .reading.parts import Part, Reading, read_parts
from .writing.encoding import PARQUET
from .writing.folders import open_folder
from .writing.record import Counts, Record

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP, _MOST_GROUPS = 32 << 20, 10_000  # bytes that one task reads at least, unless there is no more; tasks
_PARTS = 1_000_000  # more than any task reads
_EACH_FEEDS = 8  # actors that one task which reads is enough for, and more
_Rows = Any  # by column; Ray's arrays come in, lists go out


@dataclass(frozen=True)
class Actors:
    """Those that annotate.

    least, most: How many. Between them Ray has as many as the cluster has room for and the reading has parts.
    cpus, gpus: What each asks for.
    """

    least: int = 1
    most: int | None = None
    cpus: float = 1
    gpus: float = 0


class _Record(Record):
    """Parts are numbered within their group of files, since groups are read side by side."""

    def name(self, number: int) -> str:
        return _name(number, self._ending)


def _name(number: int, ending: str) -> str:
    return f"part-{number // _PARTS:05}-{number % _PARTS:05}.{ending}"


def annotate_on_ray(job: Job, done: Done, actors: Actors, address: str | None = None) -> Counts:
    """As `local.engine.annotate`, on a cluster whose nodes see the pipeline, the files and the output by the same
    names."""
    folder, total, position = open_folder(job.output), Counts(), 0
    with folder.locked(), connected(address) as ray:
        record = _Record(folder, job.format, {**job.made_of, "engine": "ray"})
        for number, counts in record.done.items():
            total.add(counts)
            done(Part(number), counts, True)
        try:
            for row in explained(ray, _made(job, record, actors, int(ray.cluster_resources().get("CPU", 0)))):
                part, counts = Part(int(row["number"])), Counts(*map(int, row["counts"]))
                position += int(row["bytes"])
                if part.number not in record.done:  # what a lost node had told is told again
                    part.position = position
                    record.add(part.number, counts)
                    total.add(counts)
                    done(part, counts, False)
        finally:
            record.keep()
    return total


def _made(job: Job, record: Record, actors: Actors, cores: int) -> Iterable[dict[str, Any]]:
    """What becomes of the parts that are to be made: number, bytes of the input, counts."""
    import ray.data as data

    groups, schema, here = _groups(job.sources), _schema(job), Path.cwd()
    items = [{"group": number, "sources": pickle.dumps(group)} for number, group in enumerate(groups)]
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # each part is a block: the unit that is sent, made, and made again
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    reader: Any = _read
    # They ask for no core: the actors may have taken all.
    readers = data.TaskPoolStrategy(max(1, min(len(items), (actors.most or cores) // _EACH_FEEDS + 1)))
    read = {"directory": here, "reading": job.reading, "text": job.annotator.settings.text}
    rows: Iterable[dict[str, Any]] = (
        data.from_items(items, override_num_blocks=max(1, len(items)))
        .map_batches(
            reader, batch_size=1, fn_kwargs={**read, "done": frozenset(record.done)}, compute=readers, num_cpus=0
        )
        .map_batches(
            _Maker,
            batch_size=1,
            fn_constructor_args=(here, replace(job, sources=()), schema),
            compute=data.ActorPoolStrategy(min_size=actors.least, max_size=actors.most),
            num_cpus=actors.cpus,
            num_gpus=actors.gpus,
        )
        .iter_rows()
    )
    return rows


def _read(group: _Rows, directory: Path, reading: Reading, text: str, done: frozenset[int]) -> Iterator[_Rows]:
    """The parts of a group of files that are not done, one at a time."""
    work_in(directory)
    first, before = int(group["group"][0]) * _PARTS, 0
    for part in read_parts(pickle.loads(group["sources"][0]), reading, text):
        part.number += first
        if part.number not in done:
            yield {"number": [part.number], "bytes": [part.position - before], "part": [pickle.dumps(part)]}
            before = part.position


class _Maker:
    """In an actor: annotates parts and writes them."""

    def __init__(self, directory: Path, job: Job, schema: pa.Schema | None) -> None:
        work_in(directory)
        self._job, self._schema = job, schema

    def __call__(self, parts: _Rows) -> _Rows:
        part: Part = pickle.loads(parts["part"][0])
        schema = self._schema or _schema_of(self._job, part)  # rows among tables say where a file is damaged
        counts = make(self._job, _name(part.number, self._job.format), part, schema)
        return {"number": [part.number], "bytes": list(parts["bytes"]), "counts": [list(asdict(counts).values())]}


def _groups(sources: Sequence[Source]) -> list[list[Source]]:
    """Files that one task reads, in order: small ones together."""
    enough = max(_GROUP, sum(each.size for each in sources) // _MOST_GROUPS)
    groups: list[list[Source]] = []
    size = enough
    for source in sources:
        if size >= enough:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += source.size
    return groups


def _schema(job: Job) -> pa.Schema | None:
    """The schema of rows that become a table, by the first of them. Refuses records without the column of the text."""
    settings = job.annotator.settings
    first = next(read_parts(job.sources, job.reading, settings.text), None)
    if first is not None:
        settings.check_columns(first.columns)
        check_text(first.columns, settings.text)
    rows = [source for source in job.sources if source.format != "parquet"]
    return _schema_of(job, next(read_parts(rows, job.reading, settings.text), None))


def _schema_of(job: Job, part: Part | None) -> pa.Schema | None:
    if part is None or not part.rows or job.format != PARQUET:
        return None
    from .writing.columns import schema_of

    return schema_of(part.rows, job.annotator.settings)
