"""Annotation of files on a cluster, by Ray Data. Tasks read files; actors with a copy of the pipeline each annotate and
write parts. Ray places both, applies backpressure, and repeats the work of a lost node. Output and resuming are as on
one machine.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster import connected, work_in, wrap_ray_errors
from .local import OnPart
from .output import AnnotationJob, PartStats, check_columns, open_output, write_part
from .reading import Part, ReadOptions, Source, read_parts

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_BYTES = 32 << 20  # least bytes of the files that one task reads
_MOST_GROUPS = 10_000  # most reading tasks
_PARTS = 1_000_000  # numbers reserved for the parts of one task, more than any needs
_ACTORS_PER_READER = 8  # one reading task keeps more actors than this busy
_Rows = Any  # columns by name: Ray passes arrays and takes lists


@dataclass(frozen=True)
class Actors:
    """The pool of actors that annotate.

    least, most: Its size. Ray scales between them with the free resources and the parts that wait.
    cpus, gpus: The resources of each actor.
    """

    least: int
    most: int | None
    cpus: float
    gpus: float


def annotate_on_ray(job: AnnotationJob, on_part: OnPart, actors: Actors, address: str | None = None) -> PartStats:
    """Annotate like `annotate_locally`, on a cluster whose nodes share the paths of pipeline, files and output."""
    total, position, schema = PartStats(), 0, check_columns(job)
    with open_output(job, engine="ray") as manifest, connected(address) as ray:
        numbers = {_number(name): PartStats(**known) for name, known in manifest.parts.items()}
        for number, stats in numbers.items():
            total += stats
            on_part(Part(number), stats, True)
        for row in wrap_ray_errors(
            ray, _write(job, schema, set(numbers), actors, int(ray.cluster_resources().get("CPU", 0)))
        ):
            part, stats = Part(int(row["number"])), PartStats(*map(int, row["stats"]))
            position += int(row["bytes"])
            if part.number not in numbers:  # Ray repeats parts of a lost node that were reported already
                numbers[part.number] = stats
                part.position = position
                manifest.finish(_name(job, part.number), asdict(stats))
                total += stats
                on_part(part, stats, False)
    return total


def _name(job: AnnotationJob, number: int) -> str:
    """Return the file name of a part: the number of its group of files, and its number within the group."""
    return f"part-{number // _PARTS:05}-{number % _PARTS:05}.{job.format}"


def _number(name: str) -> int:
    _, group, number = name.partition(".")[0].split("-")
    return int(group) * _PARTS + int(number)


def _write(
    job: AnnotationJob, schema: pa.Schema | None, finished: set[int], actors: Actors, cores: int
) -> Iterable[dict[str, Any]]:
    """Annotate and write the unfinished parts. Yields the number, the input bytes and the counts of each."""
    import ray.data as data

    groups, here = _groups(job.sources), Path.cwd()
    items = [{"group": number, "sources": pickle.dumps(group)} for number, group in enumerate(groups)]
    context = data.DataContext.get_current()
    context.enable_progress_bars = False
    context.target_max_block_size = 1  # makes each part a block, Ray's unit of transfer and of retries
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    reader: Any = _read
    # Reading tasks ask for no core, since the actors may hold all of them.
    readers = data.TaskPoolStrategy(max(1, min(len(items), (actors.most or cores) // _ACTORS_PER_READER + 1)))
    read = {"directory": here, "options": job.options, "text": job.annotator.settings.text}
    rows: Iterable[dict[str, Any]] = (
        data.from_items(items, override_num_blocks=max(1, len(items)))
        .map_batches(
            reader, batch_size=1, fn_kwargs={**read, "finished": frozenset(finished)}, compute=readers, num_cpus=0
        )
        .map_batches(
            _Writer,
            batch_size=1,
            fn_constructor_args=(here, replace(job, sources=()), schema),
            compute=data.ActorPoolStrategy(min_size=actors.least, max_size=actors.most),
            num_cpus=actors.cpus,
            num_gpus=actors.gpus,
        )
        .iter_rows()
    )
    return rows


def _read(group: _Rows, directory: Path, options: ReadOptions, text: str, finished: frozenset[int]) -> Iterator[_Rows]:
    """Yield the unfinished parts of a group of files, one at a time."""
    work_in(directory)
    first, before = int(group["group"][0]) * _PARTS, 0
    for part in read_parts(pickle.loads(group["sources"][0]), options, text):
        number = first + part.number
        if number not in finished:
            named = replace(part, number=number)  # the next part counts on from this one
            yield {"number": [number], "bytes": [part.position - before], "part": [pickle.dumps(named)]}
            before = part.position


class _Writer:
    """An actor, which annotates and writes parts."""

    def __init__(self, directory: Path, job: AnnotationJob, schema: pa.Schema | None) -> None:
        work_in(directory)
        self._job, self._schema = job, schema

    def __call__(self, parts: _Rows) -> _Rows:
        part: Part = pickle.loads(parts["part"][0])
        stats = write_part(self._job, _name(self._job, part.number), part, self._schema)
        return {"number": [part.number], "bytes": list(parts["bytes"]), "stats": [list(asdict(stats).values())]}


def _groups(sources: Sequence[Source]) -> list[list[Source]]:
    """Return the files that each task reads, in order. Small files share a task."""
    enough = max(_GROUP_BYTES, sum(each.size for each in sources) // _MOST_GROUPS)
    groups: list[list[Source]] = []
    size = enough
    for source in sources:
        if size >= enough:
            groups.append([])
            size = 0
        groups[-1].append(source)
        size += source.size
    return groups
