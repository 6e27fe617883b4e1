"""`spacy tener calibrate`: probabilities that are right as often as they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ..corpora.docs import read_examples
from ..errors import counted
from ..evaluation.calibration import (
    Series,
    Threshold,
    check_sample_size,
    cross_validate,
    errors,
    find_outcomes,
    fit_temperature,
    new_thresholds,
)
from ..pipeline.finding import find_crf_pipe
from . import options
from ._common import check_new, command, load_pipeline, msg, refuse_options, setup_gpu, write_pipeline


@command("calibrate")
def calibrate_cli(
    ctx: typer.Context,
    model: options.Model,
    data: Annotated[Path, typer.Argument(help="Annotated texts that the model was not trained on: .spacy")],
    output: Annotated[Path, options.output("a new directory, or MODEL itself with --force")],
    test: Annotated[Path | None, typer.Option("--test", help="Other texts to check the result on")] = None,
    precision: Annotated[
        float | None, options.share("--precision", "Set thresholds that keep this share of right entities")
    ] = None,
    confidence: Annotated[float, options.share("--confidence", "Confidence that --precision is kept")] = 0.9,
    component: options.Component = None,
    force: options.Force = False,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """
    Calibrate probabilities on annotated texts.

    Fits the temperature of the CRF, so that of the entities given 0.8, eight in ten are right. The best reading of a
    text stays the same; earlier thresholds are removed. Prints the expected calibration error (ECE) before and after,
    on --test, or on the texts themselves by cross-validation. With --precision 0.9, sets the thresholds above which
    nine in ten are right: for each label or group of labels, with the --confidence asked for, on texts like these. A
    label that cannot keep the precision keeps its threshold. Needs scipy, of the extra train.
    """
    check_new(output, force)
    if precision is None:
        refuse_options(ctx, ["confidence"], "there are no thresholds to be sure of", "Ask for some by --precision 0.9.")
    setup_gpu(gpu_id)
    nlp = load_pipeline(model)
    pipe = find_crf_pipe(nlp, component)
    outcomes = find_outcomes(nlp, pipe.name, read_examples(nlp, data), data)
    check_sample_size(outcomes, data)
    tested = find_outcomes(nlp, pipe.name, read_examples(nlp, test), test) if test else None
    temperature = fit_temperature(outcomes)
    changes: dict[str, Any] = {"temperature": temperature}
    found = counted(outcomes.right.size, "entity", "entities")
    msg.info(f"{found} found, {int(outcomes.right.sum())} right")
    msg.text(f"Temperature {temperature:.2f}")
    # Probabilities of texts that the temperature was not fitted to.
    shown = tested or outcomes
    after = tested.probabilities(temperature) if tested else cross_validate(outcomes)
    series: Series = {"before": (shown.probabilities(pipe.temperature), shown.right), "after": (after, shown.right)}
    _print_errors(series, f"{test}" if test else f"{data}, cross-validated")
    if precision is not None:
        fitted, thresholds = new_thresholds(pipe, outcomes, temperature, precision, confidence)
        _print_thresholds(fitted, thresholds, precision, confidence)
        changes["threshold"] = thresholds
        if tested is not None:
            is_kept = tested.probabilities(temperature) >= [thresholds[pipe.labels[i]] for i in tested.label]
            right = _share(int(tested.right[is_kept].sum()), int(is_kept.sum()))
            msg.info(f"On test: {int(is_kept.sum())} of {is_kept.size} kept, {right} right")
    elif pipe.cfg["threshold"]:
        changes["threshold"] = 0.0
        msg.warn("Earlier thresholds are removed: the probabilities changed", "Set new ones by --precision.")
    pipe.cfg.update(changes)
    write_pipeline(nlp, output)
    msg.good(f"Saved to {output}")


def _print_errors(series: Series, source: str) -> None:
    rows = []
    for title, pair in series.items():
        error = errors(*pair)
        rows.append((title, f"{error.ece:.3f}", f"{error.brier:.3f}", f"{error.nll:.3f}", str(error.count)))
    msg.table(rows, header=(source, "ECE", "Brier", "NLL", "Entities"), aligns=("l", *"rrrr"), divider=True)


def _print_thresholds(
    fitted: Sequence[Threshold], thresholds: Mapping[str, float], precision: float, confidence: float
) -> None:
    rows = [
        (
            group.labels[0] if len(group.labels) == 1 else f"{len(group.labels)} others",
            "-" if group.value is None else f"{group.value:.3f}",
            f"{group.n_above} of {group.count}",
            _share(group.right, group.n_above),
        )
        for group in fitted
    ]
    msg.table(rows, header=("Label", "Threshold", "Kept", "Right"), aligns=("l", *"rrr"), divider=True)
    unmet = [f"{label} ({thresholds[label]:g})" for group in fitted if group.value is None for label in group.labels]
    if unmet:
        msg.warn(
            f"Too few entities, or too few right, for a precision of {precision}. These labels keep their thresholds: "
            + ", ".join(unmet),
            "Annotate more texts, or ask for a lower precision.",
        )
    msg.info(f"On texts like these, with a confidence of {confidence}, at least {precision} of each row's are right")


def _share(count: int, total: int) -> str:
    return f"{count / total:.3f}" if total else "-"
