"""The command `review`, which finds annotation errors in a corpus and corrects them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import spacy
import typer

from ..corpora.docs import read_docs
from ..errors import UserError, pluralize
from ..files import check_folder, locked, write_bytes, write_text
from ..nn.run import check_gpu
from ..pipeline.finding import entity_labels, is_uncalibrated
from ..processes import interrupted_by_signals
from ..review.comparison import compare_annotations
from ..review.cross_validation import (
    ALL,
    CURVE,
    SCORES_FILE,
    CrossValidatedScore,
    CrossValidation,
    CurvePoint,
    cross_train,
    cross_validated_scores,
    cross_validation,
    n_training_texts,
    scores_to_json,
)
from ..review.page import PAGE, apply_to_corpus, write_review
from ..review.suspected_errors import ReviewedDoc, describe_model, find_suspected_errors
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
TRAINING = ("dev", "folds", "settings", "jobs", "learning_curve")


@command("review", stopped="Run the same command to resume. An interrupted training run starts from the beginning.")
def review_cli(
    ctx: typer.Context,
    model_or_config: Annotated[
        str,
        typer.Argument(
            help="Config (.cfg file or a name such as weibo) or pipeline; with --apply or --compare, the corpus "
            "(.spacy)"
        ),
    ],
    data: Annotated[
        Path | None, typer.Argument(help="Corpus with gold annotation (.spacy)", show_default=False)
    ] = None,
    *,
    output: Annotated[Path, options.output("a directory; with --apply, a .spacy file")],
    apply: Annotated[
        Path | None,
        typer.Option("--apply", help="JSON file of decisions, downloaded from a review page, to apply to the corpus"),
    ] = None,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare", help="Another annotation of the same texts (.spacy), used instead of a model's predictions"
        ),
    ] = None,
    force: options.Force = False,
    dev: Annotated[Path | None, typer.Option(help="Development set (default: paths.dev of the config)")] = None,
    folds: Annotated[
        int, typer.Option("--folds", help="Cross-validation folds (number of parts into which DATA is divided)", min=2)
    ] = 5,
    settings: options.Settings = None,
    limit: Annotated[int, options.limit("applies only to the HTML page: the JSONL file contains all texts")] = 500,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
    jobs: options.Jobs = 1,
    learning_curve: Annotated[
        bool,
        typer.Option(
            "--learning-curve", help="Also train on 25 % and 50 % of the texts, to see how F1 grows with more texts"
        ),
    ] = False,
) -> None:
    """Find annotation errors in gold annotation.

    A model predicts the entities of each text. If the most probable label sequence differs from the gold annotation,
    the difference is reported as a suspected annotation error. An error ranks high if the model assigns a high
    probability to its prediction and a low probability to the gold entities. If the model predicts no entity for a gold
    entity, the model's recall replaces the probability of the prediction: the lower the recall, the lower the rank.

    With a config, models are trained by cross-validation. Each model predicts only texts that it was not trained on. If
    the command is stopped, run it again to resume. With a pipeline, this pipeline predicts the entities of all texts. A
    pipeline that was trained on the same texts detects fewer errors, because it has memorized some of them.

    review.html shows the suspected errors in a browser, where you accept or reject the corrections. review.jsonl
    contains the same data. docs.jsonl contains, for each text, the probability that the model assigns to the
    gold annotation of the whole text.

    With a config, the command also prints precision, recall and F1 of the cross-validated predictions, with the
    standard deviations over the folds, and writes them to scores.json. The scores estimate the quality of a pipeline
    that is trained on all of these texts. --learning-curve also trains on 25 % and 50 % of the texts, to show whether
    more texts would improve F1.

    `tener review --apply decisions.json corpus.spacy --output corrected.spacy` applies your decisions to the corpus.
    Decisions whose text or entity is not found, for example because the corpus has changed, are skipped and listed.

    `tener review --compare other.spacy corpus.spacy --output compared` shows the differences between two annotations of
    the same texts, without a model. The page shows the other annotation instead of a model's predictions.

    --jobs trains several models in parallel, which share the CPU cores.
    """
    if apply is not None:
        if data is not None:
            raise CommandLineError(f"{model_or_config}: --apply needs no model", "Pass only the .spacy file.")
        unused = [*TRAINING, "limit", "gpu_id", "code", "compare"]
        refuse_options(ctx, unused, "has no effect with --apply", "Remove {options}.")
        check_file(output, force)
        _apply_decisions(apply, Path(model_or_config), output)
        return
    if compare is not None:
        if data is not None:
            raise CommandLineError(f"{model_or_config}: --compare needs no model", "Pass only the .spacy files.")
        unused = [*TRAINING, "force", "gpu_id", "code"]
        refuse_options(ctx, unused, "has no effect with --compare", "Remove {options}.")
        _compare(Path(model_or_config), compare, output, limit)
        return
    refuse_options(ctx, ["force"], "not needed, because the command resumes an existing review", "Remove {options}.")
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
        _review_by_cross_validation(validation, output, str(data), jobs, limit, learning_curve)
    else:
        refuse_options(
            ctx,
            TRAINING,
            f"used only to train models, but {model_or_config} is a trained pipeline",
            "Remove {options}, or pass a config instead of the pipeline.",
        )
        setup_gpu(gpu_id)
        nlp = load_pipeline(model_or_config)
        reviewed = list(find_suspected_errors(nlp, enumerate(docs)))
        how = f"Predicted by {describe_model(nlp, model_or_config)}."
        msg.warn(
            f"{how} If the pipeline was trained on these texts, it has memorized some of the annotation errors",
            "To find these errors, use its config instead. The texts are then predicted by cross-validation.",
        )
        with interrupted_by_signals(), locked(output / ".lock"):
            _write_review(
                output, reviewed, str(data), how, limit, entity_labels(nlp), uncalibrated=is_uncalibrated(nlp)
            )


def _review_by_cross_validation(
    validation: CrossValidation, output: Path, data: str, jobs: int, limit: int, learning_curve: bool
) -> None:
    """Train a pipeline for each fold, write the review, and print the scores of the predictions."""

    def begun(fold: int, trained: bool) -> None:
        msg.info(f"Fold {fold + 1}: {'already trained' if trained else 'training'}")

    with interrupted_by_signals(), locked(output / ".lock"):
        reviewed = list(cross_train(validation, jobs, echo=sys.stderr.write, begun=begun))
        how = f"{validation.folds} models predicted the folds that they were not trained on."
        _write_review(output, reviewed, data, how, limit, uncalibrated=True)
        scores = cross_validated_scores(reviewed)
        curve = []
        for share in CURVE if learning_curve else ():
            part = replace(validation, share=share)
            msg.info(f"Training on 1/{share} of the texts")
            of_part = cross_validated_scores(cross_train(part, jobs, echo=sys.stderr.write, begun=begun))[ALL]
            curve.append(CurvePoint(n_training_texts(part), of_part.f, of_part.f_std))
        if learning_curve:
            curve.append(CurvePoint(n_training_texts(validation), scores[ALL].f, scores[ALL].f_std))
        write_text(output / SCORES_FILE, scores_to_json(scores, curve))
        _print_scores(scores, curve)


def _print_scores(scores: Mapping[str, CrossValidatedScore], curve: Sequence[CurvePoint]) -> None:
    """Print a table with the cross-validated scores, and the learning curve."""
    rows = [
        (
            label,
            _percent(score.p, score.p_std),
            _percent(score.r, score.r_std),
            _percent(score.f, score.f_std),
            str(score.n_entities),
        )
        for label, score in scores.items()
    ]
    msg.table(rows, header=("Cross-validated", "P", "R", "F1", "Entities"), aligns=("l", *"rrrr"), divider=True)
    if curve:
        points = [(f"{point.texts:,}", _percent(point.f, point.f_std)) for point in curve]
        msg.table(points, header=("Training texts", "F1"), aligns=("r", "r"), divider=True)
        half, all_texts = curve[-2:]
        gain = 100 * (all_texts.f - half.f)
        msg.info(
            f"Training on {all_texts.texts:,} instead of {half.texts:,} texts changed F1 by {gain:+.1f}. "
            + (
                "More texts will probably improve F1."
                if gain >= 1.0
                else "More texts will probably improve F1 only a little."
            )
        )


def _percent(value: float, deviation: float) -> str:
    """Format a score and its standard deviation in percent."""
    return f"{100 * value:.1f} ± {100 * deviation:.1f}"


def _apply_decisions(decisions: Path, data: Path, output: Path) -> None:
    """Apply the accepted corrections to a corpus, write the corpus, and print a summary."""
    corpus, applied = apply_to_corpus(data, decisions)
    write_bytes(output, corpus)
    msg.warn_list("Skipped decisions, because their text or entity was not found in the corpus", applied.rejected)
    msg.good(
        f"{output}: {pluralize(applied.changed, 'correction')} applied, {applied.unchanged:,} existing "
        "annotations confirmed"
    )


def _compare(data: Path, other: Path, output: Path, limit: int) -> None:
    """Compare two annotations of the same texts, and write the review."""
    check_folder(output)
    vocab = spacy.blank("xx").vocab
    docs = list(read_docs(data, vocab))
    compared = compare_annotations(docs, read_docs(other, vocab))
    if not compared:
        raise UserError(f"{other}: contains none of the texts in {data}", "Use two annotations of the same texts.")
    if len(compared) < len(docs):
        msg.warn(f"Skipped texts that {other} does not contain: {len(docs) - len(compared):,}")
    with interrupted_by_signals(), locked(output / ".lock"):
        _write_review(output, compared, str(data), f"Compared with {other}.", limit, uncalibrated=False)


def _write_review(
    output: Path,
    reviewed: Sequence[ReviewedDoc],
    data: str,
    how: str,
    limit: int,
    label_order: Sequence[str] = (),
    *,
    uncalibrated: bool,
) -> None:
    """Write a review's output files, and print a summary."""
    errors, shown = write_review(
        output, reviewed, data, limit=limit, label_order=label_order, uncalibrated=uncalibrated
    )
    entities = sum(len(doc.entities) for doc in reviewed)
    corpus = f"{pluralize(len(reviewed), 'text')} with {pluralize(entities, 'entity', 'entities')}"
    summary = f"{pluralize(len(errors), 'suspected error')} in {corpus}. {how}"
    if len(shown) < len(errors):
        summary += f" The page shows only the highest ranked texts, with {pluralize(len(shown), 'suspected error')}."
    unknown = sum(doc.unknown for doc in reviewed)
    if unknown:
        msg.warn(f"Skipped entities: {unknown:,}", "The model was not trained on their labels.")
    msg.good(f"{output / PAGE}: {summary}")
