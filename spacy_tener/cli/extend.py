"""The command `extend`, which adds labels to a trained pipeline."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..corpora.docs import read_docs, write_docs
from ..errors import UserError, pluralize
from ..files import check_folder, locked
from ..nn.run import check_gpu
from ..processes import interrupted_by_signals
from ..training.extending import DEV, TRAIN, hold_out, plan_extension
from ..training.overlays import with_settings
from ..training.runs import MODEL, OUTPUT, Processes, TrainingRun, is_trained, train
from . import options
from ._common import CommandLineError, command, load_pipeline, msg, names


@command("extend", stopped="Run the same command again. The training run starts from the beginning.")
def extend_cli(
    model: options.Model,
    new: Annotated[Path, typer.Argument(help="Texts annotated for the new labels (.spacy)")],
    output: Annotated[Path, options.output("a directory (the pipeline is saved in its subdirectory model-best)")],
    old: Annotated[Path | None, typer.Option("--with", help="Texts that MODEL was trained on (.spacy)")] = None,
    dev: Annotated[
        Path | None,
        typer.Option("--dev", help="Development set (annotated for all labels; default: 10 % of NEW is held out)"),
    ] = None,
    labels: Annotated[
        str,
        typer.Option(
            "--labels",
            help="Labels, separated by commas, such as PER,ORG (default: all labels in NEW that MODEL doesn't have)",
        ),
    ] = "",
    rename: Annotated[
        list[str] | None, typer.Option("--rename", help="Rename a label of MODEL, as OLD=NEW; may be repeated")
    ] = None,
    steps: Annotated[int, typer.Option("--steps", help="Number of training steps", min=1)] = 800,
    component: options.Component = None,
    settings: options.Settings = None,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """Add new labels to a trained pipeline, and keep its existing labels.

    NEW contains texts that are annotated only for the new labels. For the existing labels, the new pipeline is trained
    on the predictions of MODEL (knowledge distillation). Use --with to add texts that are annotated for the existing
    labels.

    To split a label, rename it to one of the new labels. For example, to replace ORG with COMPANY and SCHOOL, annotate
    NEW with COMPANY and SCHOOL, and use --rename ORG=COMPANY. The predictions of MODEL for ORG are then not used.

    Without --dev, 10 % of NEW is held out as the development set. For the existing labels, MODEL's predictions serve as
    its gold annotation. The output directory contains the training data and the config, which you can also use with
    `spacy train`.
    """
    check_gpu(gpu_id)
    check_folder(output)
    nlp = load_pipeline(model)
    docs = list(read_docs(new, nlp.vocab))
    old_docs = list(read_docs(old, nlp.vocab)) if old else []
    extension = plan_extension(model, nlp, component, docs, names(labels), _parse_renames(rename or []), old_docs)
    learned, held_out = (docs, list(read_docs(dev, nlp.vocab))) if dev else hold_out(docs)
    config = with_settings(extension.config(output, steps), settings or [])
    # Use `model-last`, which is trained with the lowest learning rate. If the development set is small, scores are
    # noisy, and the pipeline with the best score is often worse. It may even be the pipeline after the first step.
    run = TrainingRun("extend", output, config, gpu_id, code, use_last=True)
    with interrupted_by_signals(), locked(output / ".lock"):
        write_docs(output / DEV, held_out if dev else extension.development_docs(held_out))
        write_docs(output / TRAIN, extension.training_docs(learned, old_docs))
        if is_trained(run):
            msg.good(
                f"{output / MODEL}: already trained", "To train again, use another --output, or delete this directory."
            )
            return
        msg.info(
            f"Training on {pluralize(len(learned), 'text')} with the new labels {', '.join(extension.labels)}; "
            f"existing labels of the pipeline: {', '.join(extension.present)}"
        )
        failure = train(run, Processes(1, sys.stderr.write))
        if failure:
            raise UserError(f"{output}: {failure}", f"See {output / OUTPUT}.")
    msg.good(f"Saved to {output / MODEL}")


def _parse_renames(rename: list[str]) -> dict[str, str]:
    """Parse the values of --rename. Return a dictionary from the existing labels to the new labels."""
    pairs = [tuple(part.strip() for part in pair.partition("=")) for pair in rename]
    wrong = [before + sign + after for before, sign, after in pairs if not (before and after)]
    if wrong:
        raise CommandLineError(f"--rename {wrong[0]}: two labels are required", "Use --rename OLD=NEW.")
    return {before: after for before, _, after in pairs}
