"""Commands that analyse trained pipelines: speed, radicals, languages."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from typing import Annotated

import typer

from spacy_tener.cli import options
from spacy_tener.cli._common import CommandLineError, check_file, load_pipeline, msg, names, stream_texts
from spacy_tener.errors import pluralize
from spacy_tener.files import write_text

from .app import command
from .canvas import check_ending
from .languages import language_table, score_languages
from .radicals import Characters, draw_plane
from .relative_speed import draw_relative_speeds, measure_speeds

Picture = Annotated[Path, options.output("a file: .png, .webp or .svg")]


@command("speed")
def speed_cli(
    models: Annotated[list[str], typer.Argument(help="NAME=PIPELINE; the first is the measure")],
    texts: Annotated[list[Path], typer.Option("--texts", help="Files of texts; may be repeated")],
    output: Picture,
    batch_sizes: Annotated[str, typer.Option(help="Texts in a batch, as whole numbers")] = "1,16",
    rounds: Annotated[int, typer.Option(help="Rounds in which all take turns", min=1)] = 5,
    limit: Annotated[int | None, options.limit("from the first on; default: all")] = None,
) -> None:
    """
    Compare the speed of trained pipelines with different batch sizes in a bar chart.

    Measures the CPU time of `nlp.pipe` on raw texts. The pipelines take turns, and the result is the median over
    rounds. Speeds are relative to the first pipeline with the first batch size. See FLAT-ATSSA's Figure 4 and MECT's
    Figure 6.
    """
    wrong = [model for model in models if not all(model.partition("="))]
    if wrong:
        raise CommandLineError(f"{wrong[0]}: not a name and a pipeline", "Write flat=RUNS/weibo/flat/1/model-best.")
    sizes = [int(size) for size in names(batch_sizes) if size.isdecimal() and int(size)]
    if not sizes or len(sizes) < len(names(batch_sizes)):
        raise CommandLineError(f"--batch-sizes {batch_sizes}: not whole numbers above 0", "Write --batch-sizes 1,16.")
    check_ending(output)
    check_file(output, force=True)
    loaded = {name: load_pipeline(path) for name, _, path in (model.partition("=") for model in models)}
    read = list(islice(stream_texts([str(path) for path in texts]), limit))
    speeds = measure_speeds(loaded, read, sizes, rounds=rounds)
    draw_relative_speeds(speeds, output)
    rows = [[name, *(f"{speed[size]:,.0f}" for size in sizes)] for name, speed in speeds.items()]
    msg.table(rows, header=["Characters a second", *(f"batches of {size}" for size in sizes)], divider=True)
    msg.good(f"{output}: {len(read)} texts, {sum(map(len, read)):,} characters")


@command("radicals")
def radicals_cli(
    model: options.Model,
    output: Picture,
    middle: Annotated[str, typer.Option(help="Character whose nearest are named")] = "华",
) -> None:
    """
    Plot radical embeddings of characters before and after training.

    Shows the first two principal components of the embeddings. Grey dots are all characters whose radicals occur in the
    training set. The nearest neighbours of --middle are labelled. Needs a pipeline with radical embeddings, such as
    mect. See MECT's Figure 5.
    """
    check_ending(output)
    check_file(output, force=True)
    characters = Characters(load_pipeline(model))
    draw_plane(characters, output, middle=middle)
    msg.good(f"{output}: {len(characters.names):,} characters")


@command("languages", prints_result=True)
def languages_cli(
    model: options.Model,
    data: Annotated[list[Path], typer.Argument(help=".spacy files, one for each language, and directories of them")],
    output: Annotated[Path | None, options.output("a file in Markdown (default: print)")] = None,
) -> tuple[str, int]:
    """
    Score a trained pipeline on several languages, with one file for each language.

    Prints precision, recall and F1 for each file, and F1 for each label, as computed by the pipeline's scorer.
    """
    check_file(output, force=True)
    found = [sorted(path.glob("*.spacy"), key=lambda file: file.stem) if path.is_dir() else [path] for path in data]
    files = list(chain.from_iterable(found))
    if not files:
        raise CommandLineError(f"{data[0]}: there are no .spacy files", "Make them with `spacy tener convert`.")
    table = language_table(score_languages(load_pipeline(model), files))
    if output:
        write_text(output, table)
        msg.good(f"{output}: {pluralize(len(files), 'language')}")
    return "" if output else table, 0
