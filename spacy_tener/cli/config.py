"""The command `config`, which merges a base config, overlays and single settings into a training config."""

from __future__ import annotations

import shlex
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from ..files import write_text
from ..training.config_files import BASES, OVERLAYS, description, names_in, systems
from ..training.overlays import compose, unfit_languages
from . import options
from ._common import check_file, command, msg, refuse_options


@command("config", prints_result=True)
def config_cli(
    ctx: typer.Context,
    base: Annotated[str | None, typer.Argument(help="Config: a name such as weibo, or a path")] = None,
    overlays: options.Overlays = None,
    settings: options.Settings = None,
    output: Annotated[Path | None, options.output("a file (default: print)")] = None,
    force: options.Force = False,
) -> tuple[str, int]:
    """Create a training config from a base config, overlays and single settings.

    Without arguments, lists the available configs and overlays, and explains when to use them. An overlay is a partial
    config that changes the base config.

    The result is a complete and validated config for `spacy train`. Variables such as ${paths.train} are kept. Refer to
    this package's configs by name, as in `tener config weibo flat-atssa`, and to your own files by path.

    The command warns about overlays with data for another language than that of the config.

    Overlays are merged in the given order, and later values override earlier values. A section is replaced as a whole
    if the overlay specifies a different registered function (@architectures, ...) or factory. All other sections are
    merged key by key. An overlay cannot remove keys: to disable a setting, set it to `null`; to remove a component, set
    nlp.pipeline to a list without the component. An overlay can contain a section without its parent sections.

    --set changes a single setting, which must exist in the filled config. A dictionary replaces the existing
    dictionary.
    """
    if base is None:
        why, fix = "there is no config to compose", "Add its name, as in `tener config weibo`."
        refuse_options(ctx, ["settings", "output", "force"], why, fix)
        return list_configs(), 0
    if output is None:
        refuse_options(ctx, ["force"], "there is no file to overwrite", "Add --output.")
    overlays, settings = overlays or [], settings or []
    check_file(output, force)
    config = compose(base, overlays, settings)
    unfit = unfit_languages(config)
    if unfit:
        msg.warn("; ".join(unfit), "Leave out the overlays with these sections: `tener config` lists the languages.")
    arguments = [base, *overlays, *(word for setting in settings for word in ("--set", setting))]
    heading = " ".join(f"# python -m spacy tener config {shlex.join(arguments)}".splitlines())
    text = f"{heading}\n\n{config.to_str(interpolate=False)}\n"
    if output is not None:
        write_text(output, text)
        msg.good(f"{output}: {', '.join(config['nlp']['pipeline'])}")
    return text if output is None else "", 0


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
