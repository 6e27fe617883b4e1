"""Commands that change a trained pipeline: calibrate, trim, extend."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from spacy.language import Language
from spacy.pipeline import TrainablePipe
from spacy.tokens import Doc
from spacy.util import minibatch
from thinc.api import Model as ThincModel

from ..embedders.tables import table_embedders
from ..errors import RemedyError, counted
from ..files import check_folder, locked
from ..nn.shim import require_torch
from ..pipeline.finding import find_crf_pipe
from ..pipeline.gpu import check_gpu
from ..pipeline.settings import TEMPERATURE
from ..pipeline.tener_ner import TenerNER
from ..pipeline.units import View, view_of
from ..processes import interrupted_by_signals
from ..workbench.calibration import (
    Outcomes,
    Series,
    Threshold,
    check_enough,
    cross_validated,
    errors,
    find_outcomes,
    fit_temperature,
    fit_thresholds,
)
from ..workbench.compose import with_settings
from ..workbench.corpus.docs import read_docs
from ..workbench.extending import DEV, TRAIN, hold_out, plan_extension, write_docs
from ..workbench.pipelines import check_new, count_rows, size_mb, trim_tables, write_pipeline
from ..workbench.training import MODEL, OUTPUT, Processes, TrainingRun, is_trained, train
from . import options
from ._common import CommandLineError, command, load_pipeline, msg, names, refuse_options, setup_gpu, stream_texts
from .scores import read_examples

_TEXTS_AT_ONCE = 256
_SHOWN_ENTITIES = 20


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
    check_enough(outcomes, data)
    tested = find_outcomes(nlp, pipe.name, read_examples(nlp, test), test) if test else None
    temperature = fit_temperature(outcomes)
    changes: dict[str, Any] = {TEMPERATURE: temperature}
    found = counted(outcomes.right.size, "entity", "entities")
    msg.info(f"{found} found, {int(outcomes.right.sum())} right")
    msg.text(f"Temperature {temperature:.2f}")
    # Probabilities of texts that the temperature was not fitted to.
    shown = tested or outcomes
    after = tested.probabilities(temperature) if tested else cross_validated(outcomes)
    series: Series = {"before": (shown.probabilities(pipe.temperature), shown.right), "after": (after, shown.right)}
    _print_errors(series, f"{test}" if test else f"{data}, cross-validated")
    if precision is not None:
        thresholds = _set_thresholds(pipe, outcomes, temperature, precision, confidence)
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


def _set_thresholds(
    pipe: TenerNER, outcomes: Outcomes, temperature: float, precision: float, confidence: float
) -> dict[str, float]:
    """Return the threshold of each label, and print the new ones."""
    probability = outcomes.probabilities(temperature)
    fitted = fit_thresholds(probability, outcomes.label, outcomes.right, pipe.labels, precision, confidence)
    if all(group.value is None for group in fitted):
        found = counted(outcomes.right.size, "entity", "entities")
        raise RemedyError(
            f"--precision {precision} cannot be promised by {found}; nothing was saved",
            "Annotate more texts, or ask for a lower precision.",
        )
    thresholds = dict(zip(pipe.labels, pipe.settings.thresholds(pipe.labels), strict=True))
    thresholds |= {label: group.value for group in fitted for label in group.labels if group.value is not None}
    _print_thresholds(fitted, thresholds, precision, confidence)
    return thresholds


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
            f"{group.kept} of {group.count}",
            _share(group.right, group.kept),
        )
        for group in fitted
    ]
    msg.table(rows, header=("Label", "Threshold", "Kept", "Right"), aligns=("l", *"rrr"), divider=True)
    if unmet := [
        f"{label} ({thresholds[label]:g})" for group in fitted if group.value is None for label in group.labels
    ]:
        msg.warn(
            f"Too few entities, or too few right, for a precision of {precision}. These labels keep their thresholds: "
            + ", ".join(unmet),
            "Annotate more texts, or ask for a lower precision.",
        )
    msg.info(f"On texts like these, with a confidence of {confidence}, at least {precision} of each row's are right")


def _share(count: int, total: int) -> str:
    return f"{count / total:.3f}" if total else "-"


@command("trim")
def trim_cli(
    ctx: typer.Context,
    model: options.Model,
    texts: options.RawTexts,
    output: Annotated[Path, options.output("a new directory")],
    min_count: Annotated[
        int, typer.Option("--min-count", help="Keep the rows of strings that occur this often", min=1)
    ] = 1,
    half: Annotated[bool, typer.Option("--half", help="Store rows as 16-bit floats")] = False,
    onnx: Annotated[
        str | None, options.choice(("--onnx",), "Convert transformers to ONNX, instead", ("float32", "int8"))
    ] = None,
    component: options.Component = None,
    force: options.Force = False,
    code: options.Code = None,
) -> None:
    """
    Make a pipeline smaller, or let it run without torch.

    A pipeline has a row for every character, bigram and word of its vectors and of its training data, and most texts
    use few of them. TEXTS are its training data, and raw text like that it will be used on. All strings that are not in
    TEXTS become unknown ones. Small tables, as of a segmenter's tags, and the lexicon stay whole. --component names
    another component with embedding tables, as a shared tok2vec.

    With --onnx, all rows stay. The transformer becomes a graph that ONNX Runtime computes, without torch and
    transformers: several times as fast on a CPU, in int8 most of all. Entities of TEXTS that only one of the two
    pipelines finds are counted and shown. Needs onnx and onnxruntime.
    """
    check_new(output, force)
    nlp = load_pipeline(model)
    if onnx is None:
        _trim_rows(nlp, texts, min_count, half, component)
        write_pipeline(nlp, output)
    else:
        refuse_options(ctx, ["min_count", "half", "component"], "--onnx keeps all rows", "Trim rows by another call.")
        _leave_out_torch(nlp, model, texts, onnx, output)
    msg.good(f"Saved to {output}: {size_mb(output):.1f} MB, before {size_mb(nlp.path):.1f} MB")


def _trim_rows(nlp: Language, texts: list[str], min_count: int, half: bool, component: str | None) -> None:
    name = component or find_crf_pipe(nlp).name
    layers = _with_rows(nlp, name)
    counts = count_rows(layers, minibatch(_inputs(nlp, name, texts), _TEXTS_AT_ONCE))
    trim_tables(layers, counts, min_count=min_count, half=half)


def _leave_out_torch(nlp: Language, model: str, texts: list[str], precision: str, output: Path) -> None:
    require_torch()
    from ..workbench.to_onnx_torch import Precision, changed_entities, to_onnx

    read = list(stream_texts(texts))
    to_onnx(nlp, cast(Precision, precision))
    write_pipeline(nlp, output)
    same, changed = changed_entities(load_pipeline(model), load_pipeline(str(output)), read)
    msg.info(f"{counted(len(read), 'text')}: {counted(same, 'entity', 'entities')} in both, {len(changed)} in one only")
    if changed:
        msg.table(changed[:_SHOWN_ENTITIES], header=("Found by", "Label", "Text"), divider=True)


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
    extension = plan_extension(model, nlp, component, docs, names(labels), _renamed(rename or []))
    learned, held_out = (docs, list(read_docs(dev, nlp.vocab))) if dev else hold_out(docs)
    beside = read_docs(old, nlp.vocab) if old else ()
    run = TrainingRun("extend", output, with_settings(extension.config(output, steps), settings or []), gpu_id, code)
    with interrupted_by_signals(), locked(output / ".lock"):
        write_docs(output / DEV, held_out if dev else extension.development_docs(held_out))
        write_docs(output / TRAIN, extension.training_docs(learned, beside))
        if is_trained(run):
            msg.good(f"There is nothing to do: {output / MODEL} is trained")
            return
        msg.info(
            f"{counted(len(learned), 'text')} with {', '.join(extension.labels)}, beside {', '.join(extension.present)}"
        )
        if failure := train(run, Processes(1, sys.stderr.write)):
            raise RemedyError(f"{output}: {failure}", f"See {output / OUTPUT}.")
    msg.good(f"Saved to {output / MODEL}")


def _renamed(rename: list[str]) -> dict[str, str]:
    pairs = [pair.partition("=") for pair in rename]
    if wrong := [before + sign + after for before, sign, after in pairs if not (before and after)]:
        raise CommandLineError(f"--rename {wrong[0]}: not two labels", "Write --rename OLD=NEW.")
    return {before: after for before, _, after in pairs}


def _with_rows(nlp: Language, name: str) -> ThincModel[Any, Any]:
    """Return the model of a component, which must have embedding tables."""
    models: dict[str, ThincModel[Any, Any]] = {
        name: pipe.model for name, pipe in nlp.pipeline if isinstance(pipe, TrainablePipe)
    }
    if name not in models:
        find_crf_pipe(nlp, name)
    if table_embedders(models[name]):
        return models[name]
    with_tables = [name for name, model in models.items() if table_embedders(model)]
    remedy = "There is nothing to trim."
    if with_tables:
        remedy = f"Choose one that has, by --component: {', '.join(with_tables)}."
    if any(node.name == "transformer_embed" for node in models[name].walk()):
        remedy = "It has a transformer: convert that by --onnx int8."
    raise RemedyError(f"'{name}' has no embedding tables of its own", remedy)


def _inputs(nlp: Language, name: str, texts: Sequence[str]) -> Iterator[Doc]:
    """Yield the inputs of the component's model: texts, annotated by the earlier components."""
    pipe = nlp.get_pipe(name)
    view: View = pipe.settings.view if isinstance(pipe, TenerNER) else "tokens"
    with nlp.select_pipes(disable=nlp.pipe_names[nlp.pipe_names.index(name) :]):
        for doc in nlp.pipe(map(nlp.tokenizer, stream_texts(texts))):
            text = view_of(doc, view)
            if len(text):
                yield text.piece(0, len(text))
