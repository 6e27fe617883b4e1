"""The command `config`, which merges a base config, overlays and single settings into a training config."""

from __future__ import annotations

import shlex
from pathlib import Path
from textwrap import indent
from typing import Annotated, cast

import typer
from thinc.api import Config

from ..errors import MissingPackageError, pluralize
from ..files import write_text
from ..training.config_files import BASES, OVERLAYS, description, names_in, systems
from ..training.overlays import compose, unfit_languages
from ..training.recommend import (
    GOALS,
    CorpusSummary,
    Goal,
    Recommendation,
    describe_corpus,
    measure_training,
    recommend,
    set_schedule,
)
from . import options
from ._common import CommandLineError, check_file, command, msg, refuse_options


@command("config", prints_result=True)
def config_cli(
    ctx: typer.Context,
    base: Annotated[str | None, typer.Argument(help="Base config: a name such as weibo, or a path")] = None,
    overlays: options.Overlays = None,
    settings: options.Settings = None,
    lang: Annotated[
        str | None, options.lang("determines the config (default: detected from the training texts)")
    ] = None,
    optimize: Annotated[
        str | None, options.choice(("--optimize",), "Optimization goal, which determines the overlays", GOALS)
    ] = None,
    train: Annotated[
        Path | None, typer.Option(help="Training set (.spacy), used to choose the config and the number of steps")
    ] = None,
    dev: Annotated[Path | None, typer.Option(help="Development set (.spacy; requires --train)")] = None,
    output: Annotated[Path | None, options.output("a file (default: print)")] = None,
    force: options.Force = False,
) -> tuple[str, int]:
    """Create a training config: chosen for your corpus, or composed of a base config, overlays and settings.

    With --lang or --train, and without the name of a config, the command chooses a config and overlays by the language,
    the size of the corpus and the installed packages. It prints each choice with its reason. --train also sets the
    paths, the number of steps, the evaluation frequency and the patience. To estimate the training time, the command
    trains for a few steps.

    Without arguments, lists the available configs and overlays, and explains when to use them. An overlay is a partial
    config that changes the base config.

    The result is a complete and validated config for `spacy train`. Variables such as ${paths.train} are kept. Refer to
    this package's configs by name, as in `tener config weibo flat-atssa`, and to your own files by path.

    The command warns if an overlay uses a resource for another language than that of the config, such as English word
    vectors in a config with nlp.lang = "de".

    Overlays are merged in the given order, and later values override earlier values. A section is replaced as a whole
    if the overlay specifies a different registered function (@architectures, ...) or factory. All other sections are
    merged key by key. An overlay cannot remove keys: to disable a setting, set it to `null`; to remove a component, set
    nlp.pipeline to a list without the component. An overlay can contain a section without its parent sections, for
    example [training.optimizer] without [training].

    --set changes a single setting, which must exist in the filled config. If the value is a dictionary, it replaces the
    existing dictionary. The two dictionaries are not merged.
    """
    if base is None and lang is None and train is None:
        why = "applies only when a config is created, but without BASE, --lang or --train, none is created"
        fix = "Pass one of them to create a config, for example the base config weibo: `tener config weibo`."
        refuse_options(ctx, ["settings", "optimize", "dev", "output", "force"], why, fix)
        return list_configs(), 0
    if output is None:
        refuse_options(ctx, ["force"], "no file is written without --output", "Add --output, or remove {options}.")
    if train is None:
        refuse_options(
            ctx, ["dev"], "used only with --train", "Add the training set with --train, or remove {options}."
        )
    check_file(output, force)
    corpus = describe_corpus(train, dev) if train else None
    if base is not None:
        why = f"used only to choose a config, but the config {base} is already given"
        refuse_options(ctx, ["lang", "optimize"], why, f"Remove {base} or {{options}}.")
        chosen = Recommendation(base, overlays or [])
        if corpus:
            set_schedule(chosen, corpus)
    else:
        chosen = recommend(_language(lang, corpus), corpus, cast("Goal | None", optimize))
    for choice, reason in chosen.reasons:
        msg.info(f"{choice}: {reason}")
    base, overlays, settings = chosen.base, chosen.overlays, [*chosen.settings, *(settings or [])]
    config = compose(base, overlays, settings)
    unfit = unfit_languages(config)
    if unfit:
        msg.warn(
            "; ".join(unfit),
            "Remove the overlays with these sections. `tener config` lists the languages of all overlays.",
        )
    arguments = [base, *overlays, *(word for setting in settings for word in ("--set", setting))]
    heading = " ".join(f"# python -m spacy tener config {shlex.join(arguments)}".splitlines())
    text = f"{heading}\n\n{config.to_str(interpolate=False)}\n"
    if output is not None:
        write_text(output, text)
        msg.good(f"{output}: {', '.join(config['nlp']['pipeline'])}")
    if corpus:
        _print_training_time(config, corpus)
    return text if output is None else "", 0


def _language(lang: str | None, corpus: CorpusSummary | None) -> str:
    """Return the language of the texts: the option, or the language that was detected in the corpus."""
    found = lang or (corpus.lang if corpus else "")
    if not found:
        raise CommandLineError(
            "The language of the texts cannot be detected", "Set the language, for example with --lang ja."
        )
    if lang is None:
        msg.info(f"Language {found}: detected from the training texts (use --lang to change it)")
    return found


def _print_training_time(config: Config, corpus: CorpusSummary) -> None:
    """Train for a few steps, and print how long the complete training will take on this machine."""
    training = config["training"]
    try:
        time = measure_training(config, corpus.dev or corpus.train)
    except MissingPackageError as error:
        msg.warn(f"Training time unknown: {error.reason}", error.fix)
        return
    n_steps = training["max_steps"]
    # Without development texts, assume that there will be a tenth as many as training texts.
    n_predictions = n_steps // training["eval_frequency"] * (corpus.n_dev_texts or corpus.n_texts // 10)
    seconds = time.total(n_steps, corpus.steps_per_epoch, n_predictions)
    amount = pluralize(round(seconds / 60), "minute") if seconds >= 90 else "about a minute"
    msg.info(
        f"Training time on this machine, without a GPU: {amount} for {n_steps:,} steps (estimated from a few steps; "
        "longer if other programs are running)"
    )


def list_configs() -> str:
    """Return a text that lists the package's configs and overlays, with their descriptions."""
    chosen = systems()
    features = [name for name in names_in(OVERLAYS) if name not in chosen]
    parts = ["Configs for corpora, the first argument of the command, as in `tener config weibo flat vectors`"]
    bases = names_in(BASES)
    width = max(map(len, bases))
    parts.append("\n".join(f"{name:<{width}} {description(BASES / f'{name}.cfg').splitlines()[0]}" for name in bases))
    parts += ["Systems: add one of these overlays after the config", *map(_describe_overlay, chosen)]
    features_heading = "Features: add these overlays after a system that they apply to, in the order that they name"
    parts += [features_heading, *map(_describe_overlay, features)]
    return "\n\n".join(parts) + "\n"


def _describe_overlay(overlay: str) -> str:
    """Return an overlay's name, followed by its indented description."""
    return f"{overlay}\n{indent(description(OVERLAYS / f'{overlay}.cfg'), '    ')}"
