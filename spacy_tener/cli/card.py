"""`python -m spacy tener card`"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import srsly
import typer
from spacy.cli._util import import_code

from ..errors import RemedyError
from ..files import check_folder, writing
from ..workbench.docbins import read_docs
from ..workbench.report.card import CORPORA, Card, TrainingSize, fill_meta, front_matter, render_card
from ..workbench.report.runs import dev_metrics, size_mb
from ..workbench.report.scores import parse_metrics, read_json
from ._app import load_pipeline, messages, read_meta, read_pipeline_config, setup_gpu
from ._group import tener_cli

_PASSES, _TEXTS, _SINGLE = 3, 1000, 50


@tener_cli.command("card")
def card_cli(
    model: Annotated[Path, typer.Argument(help="A trained pipeline's directory")],
    output: Annotated[Path, typer.Argument(help="Directory to write: the pipeline with README.md and meta.json")],
    metrics: Annotated[
        Path, typer.Option("--metrics", "-m", help="Scores on test, as `spacy tener evaluate --output` writes them")
    ],
    corpus: Annotated[
        str | None, typer.Option("--corpus", "-c", help="What it learned from: weibo, resume, ..., or any name")
    ] = None,
    training: Annotated[Path | None, typer.Option("--training", "-t", help=".spacy file it learned from")] = None,
    speed: Annotated[Path | None, typer.Option("--speed", "-s", help=".spacy file with texts to time it on")] = None,
    name: Annotated[str | None, typer.Option("--name", "-n", help="Name of the package, without language")] = None,
    version: Annotated[str | None, typer.Option("--version", "-v", help="Version of the package")] = None,
    license: Annotated[str | None, typer.Option("--license", "-l", help="Licence that you give it")] = None,
    author: Annotated[str | None, typer.Option("--author", "-a", help="Who made it")] = None,
    hub: Annotated[
        bool,
        typer.Option("--front-matter", help="Begin the card with the Hub's metadata, which `push` adds itself"),
    ] = False,
    gpu_id: Annotated[int, typer.Option("--gpu-id", "-g", help="GPU to time it on, or -1 for the CPU")] = -1,
    code: Annotated[Path | None, typer.Option("--code", help="Python file with what the pipeline needs")] = None,
    force: Annotated[bool, typer.Option("--force", "-F", help="Write over a pipeline at the output")] = False,
) -> None:
    """
    Copy a trained pipeline and describe it, for `spacy package`.

    The copy has a model card, README.md: scores on test by label, training data, speed, how to use it, limitations.
    Its meta.json has name, version, licence, sources and these scores. Both go into the wheel that

        python -m spacy package OUTPUT packages --build wheel

    makes of it, and `spacy huggingface-hub push` reads them there; it writes the Hub's metadata itself.
    """
    import_code(code)
    with messages() as msg:
        _check_places(model, output, force=force)
        source = CORPORA.get(corpus, {"name": corpus}) if corpus else None
        scores, before = read_json(metrics), read_meta(model)
        config = read_pipeline_config(model)
        # On Windows, `spacy project run` leaves the quotes around a command's arguments.
        license, author = (text and text.strip("'\"") for text in (license, author))
        chosen = {"name": name, "version": version, "license": license, "author": author}
        card = Card(
            meta=fill_meta(before, config, scores, source, chosen),
            config=config,
            test=parse_metrics(scores, metrics),
            dev=dev_metrics(model / "meta.json"),
            corpus=source,
            training=_count(training) if training else None,
            speed=_measure(model, speed, gpu_id) if speed else None,
            megabytes=size_mb(model),
        )
        text = (front_matter(card) if hub else "") + render_card(card)
        with writing(output):
            shutil.rmtree(output, ignore_errors=True)
            shutil.copytree(model, output)
            srsly.write_json(output / "meta.json", card.meta)
            (output / "README.md").write_text(text, encoding="utf8")
        msg.good(f"{output}: {card.package} {card.meta['version']}")
        if not card.meta.get("license"):
            msg.warn(
                "The card states no licence", "Name yours with --license; it must suit those of the training data."
            )


def _check_places(model: Path, output: Path, *, force: bool) -> None:
    if not (model / "meta.json").is_file() or not (model / "config.cfg").is_file():
        raise RemedyError(f"{model}: there is no pipeline", "Name a directory that training wrote, as model-best.")
    pipeline, copy = model.resolve(), output.resolve()
    if pipeline == copy or pipeline in copy.parents or copy in pipeline.parents:
        # meta.json of a run has its scores on dev, which `spacy tener table` reads.
        raise RemedyError(f"{output}: the pipeline itself lies there", "Choose another output: a copy is made.")
    check_folder(output)
    if output.exists() and any(output.iterdir()):
        if not (output / "meta.json").is_file():
            raise RemedyError(f"{output}: there is something else than a pipeline", "Choose another output.")
        if not force:
            raise RemedyError(f"{output}: there is a pipeline already", "Choose another output, or give --force.")


def _count(training: Path) -> TrainingSize:
    docs = list(read_docs(training))
    entities = Counter(ent.label_ for doc in docs for ent in doc.ents)
    return TrainingSize(docs=len(docs), tokens=sum(map(len, docs)), entities=entities)


def _measure(model: Path, data: Path, gpu_id: int) -> str:
    """Speed over raw text: medians of some passes, after one to warm up."""
    setup_gpu(gpu_id, silent=True)
    nlp = load_pipeline(str(model))
    texts = [doc.text for doc in read_docs(data)][:_TEXTS]
    if not texts:
        raise RemedyError(f"{data}: there is no text to time the pipeline on", "Name another file by --speed.")
    tokens = sum(map(len, nlp.pipe(texts)))
    seconds = statistics.median(_seconds(lambda: deque(nlp.pipe(texts), maxlen=0)) for _ in range(_PASSES))
    milliseconds = 1000 * statistics.median(_seconds(partial(nlp, text)) for text in texts[:_SINGLE])
    return (
        f"{sum(map(len, texts)) / seconds:,.0f} characters ({tokens / seconds:,.0f} tokens) a second by `nlp.pipe`, "
        f"{milliseconds:.1f} ms for a text by `nlp(text)`: {_machine(gpu_id)}"
    )


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _machine(gpu_id: int) -> str:
    import torch  # not above: `tener --help` is to answer without it

    if gpu_id >= 0:
        return torch.cuda.get_device_name(gpu_id)
    info, threads = Path("/proc/cpuinfo"), torch.get_num_threads()
    lines = info.read_text(encoding="utf8").splitlines() if info.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = next(iter(names), platform.processor() or platform.machine())
    return f"{processor}, {threads} thread{'s' if threads > 1 else ''} of {os.cpu_count()} cores"
