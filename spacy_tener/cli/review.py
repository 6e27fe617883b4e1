"""The command `review`, which finds annotation errors in a corpus and corrects them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import spacy
import typer

from ..corpora.docs import read_docs
from ..errors import UserError, pluralize
from ..files import check_folder, locked, write_bytes
from ..nn.run import check_gpu
from ..pipeline.finding import entity_labels
from ..processes import interrupted_by_signals
from ..review.comparison import compare_annotations
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

# Arguments that are only used if models are trained.
TRAINING = ("dev", "folds", "settings", "jobs")


@command("review", stopped="Run the same command to resume. An interrupted training run starts from the beginning.")
def review_cli(
    ctx: typer.Context,
    model_or_config: Annotated[
        str,
        typer.Argument(
            help="Config (a .cfg file, or a name such as weibo) or pipeline; with --apply or --compare, the .spacy file"
        ),
    ],
    data: Annotated[Path | None, typer.Argument(help="Gold annotation (.spacy)", show_default=False)] = None,
    *,
    output: Annotated[Path, options.output("a directory; with --apply, a .spacy file")],
    apply: Annotated[
        Path | None,
        typer.Option("--apply", help="JSON file with decisions from the page of a review, to apply to the annotation"),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option("--compare", help="Another annotation of the same texts (.spacy), to compare without a model"),
    ] = None,
    force: options.Force = False,
    dev: Annotated[Path | None, typer.Option(help="Development set (default: paths.dev of the config)")] = None,
    folds: Annotated[int, typer.Option("--folds", help="Number of folds in cross-validation", min=2)] = 5,
    settings: options.Settings = None,
    limit: Annotated[int, options.limit("on the page; the JSONL file contains all")] = 500,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
    jobs: options.Jobs = 1,
) -> None:
    """Find annotation errors in gold annotation.

    A model predicts the texts. An annotation error is suspected where its most probable label sequence differs from the
    gold annotation. Suspected errors are ranked: an error ranks high if the model assigns a high probability to its
    prediction and a low probability to the gold entities. If the model predicts no entity, the rank also depends on the
    model's recall.

    With a config, models are trained by cross-validation, so that no text is predicted by a model that was trained on
    it. If the command is stopped, run it again to resume. With a pipeline, this pipeline predicts all texts. A pipeline
    that was trained on the same texts detects fewer errors, because it has memorized some of them.

    review.html shows the suspected errors in a browser, where you accept or reject the corrections. review.jsonl
    contains the same data. docs.jsonl contains the probability of each text's complete gold annotation.

    review --apply decisions.json corpus.spacy --output corrected.spacy applies your decisions to the corpus. Decisions
    that don't match the corpus are listed, for example if the corpus has changed.

    review --compare other.spacy corpus.spacy --output compared shows the differences between two annotations of the
    same texts, without a model. On the page, the other annotation takes the place of the model's entities.

    --jobs trains several models in parallel, which share the CPU cores.
    """
    if apply is not None:
        if data is not None:
            raise CommandLineError(f"{model_or_config}: --apply needs no model", "Pass only the .spacy file.")
        unused = [*TRAINING, "limit", "gpu_id", "code", "compare"]
        refuse_options(ctx, unused, "--apply doesn't use a model", "Leave it out.")
        check_file(output, force)
        _apply_decisions(apply, Path(model_or_config), output)
        return
    if compare is not None:
        if data is not None:
            raise CommandLineError(f"{model_or_config}: --compare needs no model", "Pass only the .spacy files.")
        unused = [*TRAINING, "force", "gpu_id", "code"]
        refuse_options(ctx, unused, "--compare doesn't use a model", "Leave it out.")
        _compare(Path(model_or_config), compare, output, limit)
        return
    refuse_options(ctx, ["force"], "the command resumes an existing review", "Leave it out.")
    if data is None:
        raise CommandLineError("There is no annotation to review", "Add a .spacy file after the pipeline or config.")
    check_folder(output)
    docs = list(read_docs(data, spacy.blank("xx").vocab))
    if not any(doc.ents for doc in docs):
        raise UserError(f"{data}: contains no entities", "Use a file with gold annotation.")
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
            ctx, TRAINING, f"only for training, and {model_or_config} is trained", "Leave it out, or use a config."
        )
        setup_gpu(gpu_id)
        nlp = load_pipeline(model_or_config)
        reviewed = list(find_suspected_errors(nlp, enumerate(docs)))
        how = f"Predicted by {describe_model(nlp, model_or_config)}."
        question = "If it was trained on these texts, use a config instead."
        msg.warn(f"{how} {question}", "With a config, each text is predicted by a model that was not trained on it.")
        with interrupted_by_signals(), locked(output / ".lock"):
            _write_review(output, reviewed, str(data), how, limit, entity_labels(nlp))


def _apply_decisions(decisions: Path, data: Path, output: Path) -> None:
    """Apply the accepted corrections to a corpus, write the corpus, and print a summary."""
    corpus, applied = apply_to_corpus(data, decisions)
    write_bytes(output, corpus)
    msg.warn_list("Decisions that don't match the corpus, left out", applied.rejected)
    msg.good(f"{output}: {pluralize(applied.changed, 'decision')} applied, {applied.unchanged:,} without a change")


def _compare(data: Path, other: Path, output: Path, limit: int) -> None:
    """Compare two annotations of the same texts, and write the review."""
    check_folder(output)
    vocab = spacy.blank("xx").vocab
    docs = list(read_docs(data, vocab))
    compared = compare_annotations(docs, read_docs(other, vocab))
    if not compared:
        raise UserError(f"{other}: contains none of the texts in {data}", "Use two annotations of the same texts.")
    if len(compared) < len(docs):
        msg.warn(f"Texts that are not in {other}, left out: {len(docs) - len(compared):,}")
    with interrupted_by_signals(), locked(output / ".lock"):
        _write_review(output, compared, str(data), f"Compared with {other}.", limit)


def _write_review(
    output: Path, reviewed: Sequence[ReviewedDoc], data: str, how: str, limit: int, label_order: Sequence[str] = ()
) -> None:
    """Write a review's output files, and print a summary."""
    errors, shown = write_review(output, reviewed, data, limit=limit, label_order=label_order)
    entities = sum(len(doc.entities) for doc in reviewed)
    summary = (
        f"{pluralize(len(errors), 'suspected error')} in {pluralize(len(reviewed), 'text')} with "
        f"{pluralize(entities, 'entity', 'entities')}. {how}"
    )
    if len(shown) < len(errors):
        summary = f"The page shows {pluralize(len(shown), 'suspected error')} in the highest ranked texts, of {summary}"
    unknown = sum(doc.unknown for doc in reviewed)
    if unknown:
        msg.warn(f"Entities left out: {unknown:,}", "The model was trained without their label.")
    msg.good(f"{output / PAGE}: {summary}")
