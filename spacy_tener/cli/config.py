"""`spacy tener config`: a config from a base, overlays and settings."""

from __future__ import annotations

import shlex
from pathlib import Path
from textwrap import indent
from typing import Annotated

import typer

from ..files import write_text
from ..training.config_files import BASES, OVERLAYS, description, names_in, systems
from ..training.overlays import compose
from . import options
from ._common import check_file, command, msg, refuse_options


@command("config", prints_result=True)
def config_cli(
    ctx: typer.Context,
    base: Annotated[str | None, typer.Argument(help="Config: a name from the package, as weibo, or a path")] = None,
    overlays: options.Overlays = None,
    settings: options.Settings = None,
    output: Annotated[Path | None, options.output("a file (default: print)")] = None,
    force: options.Force = False,
) -> tuple[str, int]:
    """
    Compose a config from a base, overlays and settings.

    Without arguments, says which configs and overlays there are, and which to take when.

    Writes a complete and validated config for `spacy train`, and keeps variables such as ${paths.train}. Configs of the
    package are given by name, as in `tener config weibo flat-atssa`; your own files by path.

    Later files override earlier ones. A section with another registered function (@architectures, ...) or factory
    replaces the whole section; any other section is merged key by key. Nothing else removes a key: set it to `null`, or
    remove a component by an nlp.pipeline without it. Overlays may leave out empty parent sections.

    --set takes only keys that the filled config has. A dictionary replaces the one that is there.
    """
    if base is None:
        why, remedy = "there is no config to compose", "Name one first, as in `tener config weibo`."
        refuse_options(ctx, ["settings", "output", "force"], why, remedy)
        return described(), 0
    if output is None:
        refuse_options(ctx, ["force"], "there is no file to overwrite", "Name one by --output.")
    overlays, settings = overlays or [], settings or []
    check_file(output, force)
    config = compose(base, overlays, settings)
    arguments = [base, *overlays, *(word for setting in settings for word in ("--set", setting))]
    heading = " ".join(f"# python -m spacy tener config {shlex.join(arguments)}".splitlines())
    text = f"{heading}\n\n{config.to_str(interpolate=False)}\n"
    if output is not None:
        write_text(output, text)
        msg.good(f"{output}: {', '.join(config['nlp']['pipeline'])}")
    return text if output is None else "", 0


def described() -> str:
    """Return what the configs and overlays of the package say of themselves, systems first."""
    chosen = systems()
    features = [name for name in names_in(OVERLAYS) if name not in chosen]
    parts = ["Configs, of corpora: the first word of a command line, as in `tener config weibo flat vectors`"]
    bases = names_in(BASES)
    width = max(map(len, bases))
    parts.append("\n".join(f"{name:<{width}} {description(BASES / f'{name}.cfg').splitlines()[0]}" for name in bases))
    parts += ["Systems: one of these overlays after the config", *map(_entry, chosen)]
    parts += ["More overlays, laid on a system", *map(_entry, features)]
    return "\n\n".join(parts) + "\n"


def _entry(overlay: str) -> str:
    return f"{overlay}\n{indent(description(OVERLAYS / f'{overlay}.cfg'), '    ')}"
