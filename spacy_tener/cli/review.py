"""`spacy tener review`: suspected errors in gold annotation, and decisions on them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import spacy
import typer

from ..corpora.docs import read_docs
from ..errors import RemedyError, counted
from ..files import check_folder, locked, write_bytes
from ..nn.run import check_gpu
from ..pipeline.finding import entity_labels
from ..processes import interrupted_by_signals
from ..review.page import PAGE, apply_to_corpus, write_review
from ..review.suspected_errors import ReviewedDoc, cross_train, cross_validation, describe_model, find_suspected_errors
from ..training.config_files import BASES, names_in
from . import options
from ._common import (
    CommandLineError,
    check_file,
    command,
    load_pipeline,
    msg,
    refuse_options,
    setup_gpu,
)

TRAINING = ("dev", "folds", "settings", "jobs")
"""Arguments of `review` that are about training."""


@command("review", stopped="The same command resumes; an interrupted training begins again.")
def review_cli(
    ctx: typer.Context,
    model_or_config: Annotated[
        str, typer.Argument(help="Config (a .cfg, or a name as `weibo`) or pipeline; with --apply the .spacy file")
    ],
    data: Annotated[Path | None, typer.Argument(help="Gold annotation, a .spacy file", show_default=False)] = None,
    *,
    output: Annotated[Path, options.output("a directory; with --apply a .spacy file")],
    apply: Annotated[
        Path | None, typer.Option("--apply", help="Decisions from a review's page, to apply to the annotation")
    ] = None,
    force: options.Force = False,
    dev: Annotated[Path | None, typer.Option(help="Texts to choose models by (the config's paths.dev)")] = None,
    folds: Annotated[int, typer.Option("--folds", help="Folds of the cross-validation", min=2)] = 5,
    settings: options.Settings = None,
    limit: Annotated[int, options.limit("on the page; the JSONL has all")] = 500,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
    jobs: options.Jobs = 1,
) -> None:
    """
    Rank suspected errors in gold annotation.

    With a config, models are trained by cross-validation, and each model predicts the fold that it was not trained on.
    The same command resumes a stopped review. With a pipeline, this pipeline predicts all texts. If it was trained on
    them, it has learned the errors of the annotation too, and finds fewer of them.

    A suspected error is a difference between the model's best label sequence and the gold annotation. The errors are
    ranked by the probability of the model's entities and the improbability of the gold entities. If the model finds no
    entity, the recall of the models takes the place of the probability. review.html shows the errors in a browser,
    where you decide on them. review.jsonl contains them as data, and docs.jsonl contains the probability of each
    text's whole gold annotation.

    review --apply decisions.json corpus.spacy --output mended.spacy writes the corpus with the decisions of the page,
    and changes nothing else. It lists the decisions that no longer fit a changed corpus.

    --jobs trains several models at once, which share the cores.
    """
    if apply is not None:
        if data is not None:
            raise CommandLineError(f"{model_or_config}: --apply needs no model", "Name the .spacy file only.")
        refuse_options(ctx, [*TRAINING, "limit", "gpu_id", "code"], "--apply reads no text by a model", "Leave it out.")
        check_file(output, force)
        _apply_decisions(apply, Path(model_or_config), output)
        return
    refuse_options(ctx, ["force"], "the same command resumes a review", "Leave it out.")
    if data is None:
        raise CommandLineError("There is no annotation to review", "Name a .spacy file after the pipeline or config.")
    check_folder(output)
    docs = list(read_docs(data, spacy.blank("xx").vocab))
    if not any(doc.ents for doc in docs):
        raise RemedyError(f"{data}: no entity is annotated in it", "Name gold annotation to review.")
    if model_or_config.endswith(".cfg") or model_or_config in names_in(BASES):
        check_gpu(gpu_id)
        validation = cross_validation(
            model_or_config, docs, output, folds, dev=dev, settings=settings or [], gpu_id=gpu_id, code=code
        )

        def begun(fold: int, trained: bool) -> None:
            msg.info(f"{validation.folder(fold)}: {'trained already' if trained else 'training'}")

        with interrupted_by_signals(), locked(output / ".lock"):
            reviewed = list(cross_train(validation, jobs, echo=sys.stderr.write, begun=begun))
            how = f"{folds} models predicted the folds that they were not trained on."
            _write_review(output, reviewed, str(data), how, limit)
    else:
        refuse_options(
            ctx, TRAINING, f"for training, and {model_or_config} is trained", "Leave it out, or name a config."
        )
        setup_gpu(gpu_id)
        nlp = load_pipeline(model_or_config)
        reviewed = list(find_suspected_errors(nlp, enumerate(docs)))
        how = f"Predicted by {describe_model(nlp, model_or_config)}."
        question = "Was it trained on these texts, errors and all? Then give a config instead."
        msg.warn(f"{how} {question}", "With a config, the model of each text was not trained on this text.")
        with interrupted_by_signals(), locked(output / ".lock"):
            _write_review(output, reviewed, str(data), how, limit, entity_labels(nlp))


def _apply_decisions(decisions: Path, data: Path, output: Path) -> None:
    corpus, applied = apply_to_corpus(data, decisions)
    write_bytes(output, corpus)
    msg.warn_list("Decisions that do not fit the corpus, left out", applied.rejected)
    msg.good(f"{output}: {counted(applied.changed, 'decision')} applied, {applied.unchanged:,} agreed already")


def _write_review(
    output: Path, reviewed: Sequence[ReviewedDoc], data: str, how: str, limit: int, label_order: Sequence[str] = ()
) -> None:
    errors, shown = write_review(output, reviewed, data, limit=limit, label_order=label_order)
    entities = sum(len(doc.entities) for doc in reviewed)
    summary = (
        f"{counted(len(errors), 'suspected error')} about {counted(len(reviewed), 'text')} with "
        f"{counted(entities, 'entity', 'entities')}. {how}"
    )
    if len(shown) < len(errors):
        summary = f"The {counted(len(shown), 'suspected error')} about the most suspicious texts, of {summary}"
    unknown = sum(doc.unknown for doc in reviewed)
    if unknown:
        msg.warn(f"Entities left out: {unknown:,}", "The model was trained without their label.")
    msg.good(f"{output / PAGE}: {summary}")
