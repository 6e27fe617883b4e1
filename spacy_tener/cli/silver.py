"""`python -m spacy tener silver`"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code

from ..errors import RemedyError
from ..files import check_folder, locked
from ..pipeline.finding import entity_finders
from ..workbench.runs.processes import interrupted_by_signals
from ..workbench.teaching.beliefs import check_teachers, lacking
from ..workbench.teaching.silver import Counts, Sureness, made_of, write_silver
from ..workbench.vectors.raw_text import comes_once, find_texts, read_all
from ._app import Code, GpuId, load_pipeline, messages, names, setup_gpu
from ._group import tener_cli


@tener_cli.command("silver")
def silver_cli(
    teachers: Annotated[str, typer.Argument(help="Pipelines with entities, with commas between them")],
    raw: Annotated[list[str], typer.Argument(help="Text files, JSONL, .spacy, directories of them; - for stdin")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Directory of .spacy files to write")],
    sure: Annotated[float, typer.Option(help="Least probability of an entity that is kept")] = 0.9,
    outside: Annotated[float, typer.Option(help="Least probability of a token that is kept as no entity")] = 0.9,
    limit: Annotated[int, typer.Option("--limit", "-n", help="Most texts to annotate; 0 for all", min=0)] = 0,
    part_size: Annotated[int, typer.Option(help="Texts in each file", min=1)] = 5000,
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Annotate raw text by trained pipelines, as training data for another one.

    Kept is what the teachers are sure of: entities, and tokens that are in none. The annotation of all other tokens is
    missing, and learned as such. With several teachers, the mean of their probabilities counts. `tener_ner` gives
    probabilities (calibrate it: `spacy tener calibrate`); to what other components find, each gives 1.

    Every line of the text is a text. The output is read by `spacy.Corpus.v1`, and beside annotation of your own by
    `spacy_tener.MixedCorpus.v1`. Stopped, the same command goes on behind the last whole file, unless teachers or texts
    have changed, or come from standard input.
    """
    import_code(code)
    stopped = "The same command goes on behind the last whole file."
    if any(map(comes_once, raw)):
        stopped = f"{output} keeps the files that are whole; from standard input the same command does not go on."
    with messages(stopped=stopped) as msg:
        setup_gpu(gpu_id, silent=False)
        check_folder(output)
        kept = Sureness(sure, outside)
        pipelines = [load_pipeline(name) for name in names(teachers)]
        if not pipelines:
            raise RemedyError("no teacher is named", "Name one or more pipelines, as in teacher/model-best.")
        sources, left_out = find_texts(raw)
        if left_out:
            msg.warn(f"Left out: {len(left_out)} files that are no text", ", ".join(map(str, left_out[:5])))
        named = dict(zip(names(teachers), pipelines, strict=True))
        check_teachers(named)
        if silent := [name for name, teacher in named.items() if not entity_finders(teacher)]:
            msg.warn(f"No component says that it finds entities: {', '.join(silent)}", "Its silence counts as sure.")
        if lacks := lacking(named):
            lines = [f"{name} does not know {', '.join(labels)}" for name, labels in lacks.items()]
            msg.warn("Teachers vote against the entities of labels that they do not know", "\n".join(lines))
        settings = {**made_of(names(teachers), pipelines, sources), "limit": limit}
        with interrupted_by_signals(), locked(output / ".lock"):
            total = write_silver(
                pipelines,
                itertools.islice(read_all(sources), limit or None),
                output,
                kept,
                settings=settings,
                part_size=part_size,
                done=lambda counts, made: msg.info(said(counts, made=made)),
            )
        if not total.texts:
            raise RemedyError(f"{', '.join(raw)}: there is no text", "Give files with a text on each line.")
        msg.good(f"{output}: {said(total)}")


def said(counts: Counts, *, made: bool = False) -> str:
    """One line about annotated texts. made: before this call."""
    open_share = 100 * counts.missing / max(1, counts.tokens)
    numbers = f"{counts.texts:,} texts, {counts.entities:,} entities, {open_share:.1f} % of the tokens left open"
    return f"{numbers} (made before)" if made else numbers
