"""`python -m spacy tener calibrate`"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from spacy.cli._util import import_code

from ..errors import RemedyError
from ..pipeline.confidence.calibration import CALIBRATION, Calibration
from ..pipeline.finding import find_recogniser
from ..workbench.calibration.diagram import Series, draw_reliability
from ..workbench.calibration.fitting import as_cfg, cross_validated, fit, plain
from ..workbench.calibration.measures import Probabilities, measures
from ..workbench.calibration.model import check_enough, check_place, judged, store
from ..workbench.calibration.outcomes import Outcomes
from ..workbench.calibration.precision import Threshold, thresholds
from ..workbench.report.canvas import ENDINGS
from ._app import Code, GpuId, Messages, load_pipeline, messages, setup_gpu
from ._group import tener_cli
from .evaluate import read_examples

BEFORE, AFTER = "before", "after"


@tener_cli.command("calibrate")
def calibrate_cli(
    model: Annotated[str, typer.Argument(help="Directory of a pipeline, or its package with --output")],
    data: Annotated[Path, typer.Argument(help="Annotated texts that the model has not learned: .spacy", exists=True)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="New directory; default: MODEL itself")] = None,
    test: Annotated[Path | None, typer.Option("--test", help="Other texts to check the result on", exists=True)] = None,
    precision: Annotated[
        float | None, typer.Option("--precision", help="Set thresholds that keep this share of right entities")
    ] = None,
    confidence: Annotated[float, typer.Option("--confidence", help="How certain --precision is to be")] = 0.9,
    plot: Annotated[Path | None, typer.Option("--plot", help="Reliability diagram to draw: .png or .svg")] = None,
    name: Annotated[str, typer.Option("--name", help="Component of the pipeline")] = "tener_ner",
    gpu_id: GpuId = -1,
    code: Code = None,
) -> None:
    """
    Make probabilities such that of the entities given 0.8, eight in ten are right, by texts like those to come.

    Fits one temperature for all, and a line for each label with enough data, and keeps them in the model: what it
    finds stays the same, but that thresholds of before are taken away. Prints the expected calibration error (ECE)
    before and after, on --test, or on the texts themselves by cross-validation. With --precision 0.9, sets the
    thresholds above which nine in ten are right: for each label or group of labels, with the --confidence asked for,
    on texts like these.
    """
    import_code(code)
    with messages() as msg:
        _check(model, output, precision, confidence, plot)
        setup_gpu(gpu_id, silent=False)
        nlp = load_pipeline(model)
        labels = find_recogniser(nlp, name).labels
        outcomes = judged(nlp, name, read_examples(nlp, data), data)
        check_enough(outcomes, data)
        tested = judged(nlp, name, read_examples(nlp, test), test) if test else None
        calibration = fit(outcomes, labels)
        changes: dict[str, Any] = {CALIBRATION: as_cfg(calibration, labels)}
        _tell_fit(msg, outcomes, calibration, labels)
        series = _series(outcomes, tested, calibration, labels)
        _tell_errors(msg, series, f"{test}" if test else f"{data}, cross-validated")
        if precision is not None:
            found = thresholds(
                outcomes.probabilities(calibration), outcomes.label, outcomes.right, labels, precision, confidence
            )
            if not any(each.is_kept for each in found):
                raise RemedyError(
                    f"--precision {precision}: cannot be promised by {outcomes.right.size} entities",
                    "Give more texts, or wish less. Nothing was changed.",
                )
            changes["threshold"] = {label: each.value for each in found for label in each.labels}
            _tell_thresholds(msg, found, tested, calibration, labels, precision, confidence)
        elif find_recogniser(nlp, name).cfg["threshold"]:
            changes["threshold"] = 0.0
            msg.warn("The thresholds are taken away: they were of other probabilities", "Set new ones by --precision.")
        if plot:
            draw_reliability(plot, {str(test or data): series})
            msg.good(str(plot))
        msg.good(f"Saved to {store(nlp, name, changes, output)}")


def _check(model: str, output: Path | None, precision: float | None, confidence: float, plot: Path | None) -> None:
    check_place(model, output)
    for option, value in (("--precision", precision), ("--confidence", confidence)):
        if value is not None and not 0.0 < value < 1.0:
            raise RemedyError(f"{option} {value}: is no share between 0 and 1", f"Give one, as in {option} 0.9.")
    if plot and plot.suffix not in ENDINGS:
        raise RemedyError(f"--plot {plot}: figures are {' or '.join(ENDINGS)}", "Choose another ending.")


def _series(outcomes: Outcomes, tested: Outcomes | None, calibration: Calibration, labels: Sequence[str]) -> Series:
    """Probabilities before and after, of texts that the calibration was not fitted to."""
    shown = tested or outcomes
    after: Probabilities = tested.probabilities(calibration) if tested else cross_validated(outcomes, labels)
    return {BEFORE: (shown.probabilities(plain(len(labels))), shown.right), AFTER: (after, shown.right)}


def _tell_fit(msg: Messages, outcomes: Outcomes, calibration: Calibration, labels: Sequence[str]) -> None:
    msg.info(f"{outcomes.right.size} entities found, {int(outcomes.right.sum())} right")
    lines = ", ".join(as_cfg(calibration, labels)["labels"]) or "none, for want of data or of a gain"
    msg.text(f"Temperature {calibration.temperature:.2f}; lines of labels: {lines}")


def _tell_errors(msg: Messages, series: Series, source: str) -> None:
    rows = []
    for title, pair in series.items():
        each = measures(*pair)
        rows.append((title, f"{each.ece:.3f}", f"{each.brier:.3f}", f"{each.nll:.3f}", str(each.count)))
    msg.table(rows, header=(source, "ECE", "Brier", "NLL", "Entities"), aligns=("l", *"rrrr"), divider=True)


def _tell_thresholds(
    msg: Messages,
    found: Sequence[Threshold],
    tested: Outcomes | None,
    calibration: Calibration,
    labels: Sequence[str],
    precision: float,
    confidence: float,
) -> None:
    rows = [
        (
            each.labels[0] if len(each.labels) == 1 else f"{len(each.labels)} others",
            f"{each.value:.3f}",
            f"{each.kept} of {each.count}",
            _share(each.right, each.kept),
        )
        for each in found
    ]
    msg.table(rows, header=("Label", "Threshold", "Kept", "Right"), aligns=("l", *"rrr"), divider=True)
    without = [label for each in found if not each.is_kept for label in each.labels]
    if without:
        msg.warn(
            f"Too little data, or too few right, for a precision of {precision}: {', '.join(without)}",
            "Their threshold is 1, so that none of them is found. Give more texts, or wish less.",
        )
    msg.info(f"On texts like these, with a confidence of {confidence}, at least {precision} of each row's are right")
    if tested is not None:
        least = {label: each.value for each in found for label in each.labels}
        kept = tested.probabilities(calibration) >= [least[labels[i]] for i in tested.label]
        share = _share(int(tested.right[kept].sum()), int(kept.sum()))
        msg.info(f"On test: {int(kept.sum())} of {kept.size} kept, {share} right")


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"
