"""The command `calibrate`, which calibrates the probabilities of a pipeline on annotated texts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..corpora.docs import read_examples
from ..errors import pluralize
from ..evaluation.calibration import (
    RELIABLE_OUTCOMES,
    Series,
    Threshold,
    check_sample_size,
    cross_validate,
    errors,
    find_fold_outcomes,
    find_outcomes,
    fit_temperature,
    new_thresholds,
)
from ..pipeline.finding import find_crf_pipe
from ..review.cross_validation import fold_examples
from . import options
from ._common import check_new, command, load_pipeline, msg, refuse_options, setup_gpu, write_pipeline


@command("calibrate")
def calibrate_cli(
    ctx: typer.Context,
    model: options.Model,
    data: Annotated[
        Path,
        typer.Argument(help="Held-out annotated texts (.spacy); with --folds, the training texts of MODEL"),
    ],
    output: Annotated[Path, options.output("a new directory, or a pipeline to overwrite with --force, such as MODEL")],
    folds: Annotated[
        Path | None,
        typer.Option(
            "--folds",
            help="Cross-validation folds (path of the directory that `tener review CONFIG DATA` has created)",
        ),
    ] = None,
    test: Annotated[
        Path | None, typer.Option("--test", help="Test set to evaluate the calibration on (.spacy)")
    ] = None,
    precision: Annotated[
        float | None,
        options.fraction(
            "--precision",
            "Set a threshold for each label, so that at least this fraction of the entities above it is correct",
        ),
    ] = None,
    confidence: Annotated[
        float, options.fraction("--confidence", "Confidence level of the statistical test for --precision")
    ] = 0.9,
    component: options.Component = None,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """Calibrate the probabilities of a pipeline on annotated texts.

    After calibration, about 80 % of the entities with the probability 0.8 are correct. The command applies temperature
    scaling to the CRF, which doesn't change a text's most probable label sequence. It prints the expected calibration
    error (ECE) before and after calibration. The error is measured on --test, or by cross-validation on DATA. Existing
    probability thresholds are removed.

    A small held-out set often contains too few wrong predictions for calibration. In this case, use the training texts
    as DATA, and pass the output directory of `tener review CONFIG DATA` with --folds. It contains pipelines trained by
    cross-validation. Each pipeline predicts the entities of the texts that it was not trained on.

    With --precision 0.9, the command also sets a probability threshold for each label. Labels with fewer than 100
    predicted entities in DATA share a threshold. On texts similar to DATA, at least 90 % of the entities above the
    threshold are correct, with the confidence level --confidence. To find the threshold, the command tests decreasing
    values, and stops at the first value for which a binomial test doesn't confirm a precision of 0.9 at this confidence
    level. Labels for which the highest value fails get no threshold.

    Requires scipy (extra `train`).
    """
    check_new(output, force)
    if precision is None:
        refuse_options(
            ctx,
            ["confidence"],
            "used only with --precision",
            "Add --precision 0.9 to set thresholds, or remove {options}.",
        )
    setup_gpu(gpu_id)
    nlp = load_pipeline(model)
    pipe = find_crf_pipe(nlp, component)
    if folds:
        outcomes = find_fold_outcomes(fold_examples(folds, data), pipe, data)
    else:
        outcomes = find_outcomes(nlp, pipe.name, read_examples(nlp, data), data)
    check_sample_size(outcomes, data)
    tested = find_outcomes(nlp, pipe.name, read_examples(nlp, test), test) if test else None
    temperature = fit_temperature(outcomes)
    changes: dict[str, Any] = {"temperature": temperature}
    found = pluralize(outcomes.right.size, "entity", "entities")
    n_right = int(outcomes.right.sum())
    n_wrong = outcomes.right.size - n_right
    msg.info(f"{found} predicted, {n_right} correct")
    msg.text(f"Temperature {temperature:.2f}")
    if min(n_right, n_wrong) < RELIABLE_OUTCOMES:
        msg.warn(
            f"The temperature is uncertain, because only {n_right} predictions are correct and {n_wrong} are wrong",
            f"Calibrate on more texts, with at least {RELIABLE_OUTCOMES} correct and {RELIABLE_OUTCOMES} wrong "
            "predictions.",
        )
    # Measure the error on texts that were not used to fit the temperature.
    shown = tested or outcomes
    after = tested.probabilities(temperature) if tested else cross_validate(outcomes)
    series: Series = {"before": (shown.probabilities(pipe.temperature), shown.right), "after": (after, shown.right)}
    _print_errors(series, f"{test}" if test else f"{data}, cross-validated")
    if precision is not None:
        fitted, thresholds = new_thresholds(pipe, outcomes, temperature, precision, confidence)
        _print_thresholds(fitted, precision, confidence)
        changes["threshold"] = thresholds
        if tested is not None:
            is_kept = tested.probabilities(temperature) >= [thresholds[pipe.labels[i]] for i in tested.label]
            right = _fraction(int(tested.right[is_kept].sum()), int(is_kept.sum()))
            msg.info(
                f"On the test set: {int(is_kept.sum())} of {is_kept.size} predicted entities are above the threshold, "
                f"with precision {right}"
            )
    elif pipe.cfg["threshold"]:
        changes["threshold"] = 0.0
        msg.warn(
            "The existing thresholds were removed, because calibration changed the probabilities",
            "Set new thresholds with --precision.",
        )
    pipe.cfg.update(changes)
    write_pipeline(nlp, output)
    msg.good(f"Saved to {output}")


def _print_errors(series: Series, source: str) -> None:
    """Print a table with the calibration errors before and after calibration."""
    rows = []
    for title, pair in series.items():
        error = errors(*pair)
        rows.append((title, f"{error.ece:.3f}", f"{error.brier:.3f}", f"{error.nll:.3f}", str(error.count)))
    msg.table(rows, header=(source, "ECE", "Brier", "NLL", "Entities"), aligns=("l", *"rrrr"), divider=True)


def _print_thresholds(fitted: Sequence[Threshold], precision: float, confidence: float) -> None:
    """Print a table with the probability thresholds. Warn about labels for which no threshold was found."""
    rows = [
        (
            group.labels[0] if len(group.labels) == 1 else f"{len(group.labels)} others",
            "-" if group.value is None else f"{group.value:.3f}",
            f"{group.n_above} of {group.count}",
            _fraction(group.right, group.n_above),
        )
        for group in fitted
    ]
    msg.table(rows, header=("Label", "Threshold", "Kept", "Correct"), aligns=("l", *"rrr"), divider=True)
    unmet = [label for group in fitted if group.value is None for label in group.labels]
    if unmet:
        msg.warn(
            f"No threshold ensures a precision of {precision} for these labels: {', '.join(unmet)}",
            "Annotate more texts, or use a lower precision.",
        )
    msg.info(
        f"On similar texts, the precision above each threshold is at least {precision} (confidence level {confidence})"
    )


def _fraction(count: int, total: int) -> str:
    """Format `count / total` with three decimals, or return `-` if `total` is 0."""
    return f"{count / total:.3f}" if total else "-"
