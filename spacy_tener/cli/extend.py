"""`spacy tener extend`: new labels for a trained pipeline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..corpora.docs import read_docs, write_docs
from ..errors import RemedyError, counted
from ..files import check_folder, locked
from ..nn.run import check_gpu
from ..processes import interrupted_by_signals
from ..training.extending import DEV, TRAIN, hold_out, plan_extension
from ..training.overlays import with_settings
from ..training.runs import MODEL, OUTPUT, Processes, TrainingRun, is_trained, train
from . import options
from ._common import CommandLineError, command, load_pipeline, msg, names


@command("extend", stopped="The same command continues; an interrupted training begins again.")
def extend_cli(
    model: options.Model,
    new: Annotated[Path, typer.Argument(help="Texts annotated for new labels alone: .spacy")],
    output: Annotated[Path, options.output("a directory; the pipeline is its model-best")],
    old: Annotated[Path | None, typer.Option("--with", help="The texts that MODEL was trained on: .spacy")] = None,
    dev: Annotated[
        Path | None,
        typer.Option("--dev", help="Texts to choose models by (annotated for all labels; default: some of NEW)"),
    ] = None,
    labels: Annotated[
        str, typer.Option("--labels", help="Labels, as in PER,ORG (of NEW; default: those that MODEL lacks)")
    ] = "",
    rename: Annotated[list[str] | None, typer.Option("--rename", help="OLD=NEW, a label; may be repeated")] = None,
    steps: Annotated[int, typer.Option("--steps", help="Training steps", min=1)] = 800,
    component: options.Component = None,
    settings: options.Settings = None,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Teach a trained pipeline new labels, and let it keep its own.

    NEW has the entities of the new labels, and nothing is said of others there: MODEL itself teaches these, by its
    probabilities under the annotation. --with adds texts that are annotated for the labels of MODEL.

    A label is split by --rename: --rename ORG=COMPANY, where NEW has COMPANY and SCHOOL.

    One text of ten in NEW is not learned, unless --dev names others. With what MODEL finds there, they give the score.
    The output has the texts and the config, which `spacy train` runs too.
    """
    check_gpu(gpu_id)
    check_folder(output)
    nlp = load_pipeline(model)
    docs = list(read_docs(new, nlp.vocab))
    beside = list(read_docs(old, nlp.vocab)) if old else []
    extension = plan_extension(model, nlp, component, docs, names(labels), _renamed(rename or []), beside)
    learned, held_out = (docs, list(read_docs(dev, nlp.vocab))) if dev else hold_out(docs)
    config = with_settings(extension.config(output, steps), settings or [])
    # As the rate has come down by then. Few texts would often choose a worse one, even that of the first step.
    run = TrainingRun("extend", output, config, gpu_id, code, takes_last=True)
    with interrupted_by_signals(), locked(output / ".lock"):
        write_docs(output / DEV, held_out if dev else extension.development_docs(held_out))
        write_docs(output / TRAIN, extension.training_docs(learned, beside))
        if is_trained(run):
            msg.good(f"There is nothing to do: {output / MODEL} is trained")
            return
        msg.info(
            f"{counted(len(learned), 'text')} with {', '.join(extension.labels)}, beside {', '.join(extension.present)}"
        )
        failure = train(run, Processes(1, sys.stderr.write))
        if failure:
            raise RemedyError(f"{output}: {failure}", f"See {output / OUTPUT}.")
    msg.good(f"Saved to {output / MODEL}")


def _renamed(rename: list[str]) -> dict[str, str]:
    pairs = [tuple(part.strip() for part in pair.partition("=")) for pair in rename]
    wrong = [before + sign + after for before, sign, after in pairs if not (before and after)]
    if wrong:
        raise CommandLineError(f"--rename {wrong[0]}: not two labels", "Write --rename OLD=NEW.")
    return {before: after for before, _, after in pairs}
