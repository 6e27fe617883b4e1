"""`python -m spacy tener config`"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from ..files import write_text
from ..workbench.composing.compose import compose
from ._app import Settings, messages
from ._group import tener_cli

STDOUT = "-"


@tener_cli.command("config")
def config_cli(
    base: Annotated[str, typer.Argument(help="A config, as of a corpus: conll2003, or the path of a file")],
    overlays: Annotated[
        list[str] | None, typer.Argument(help="Overlays, as of models: encoder-bilstm, or paths of files")
    ] = None,
    settings: Settings = None,
    output: Annotated[str, typer.Option("--output", "-o", help="File to write, or - for standard output")] = STDOUT,
) -> None:
    """
    Put a config together: a corpus' config, overlays on it, single settings on top.

    Writes a complete and validated config for `spacy train`, with variables such as ${paths.train} as they are.
    Configs that come with the package go by name, as in `tener config weibo flat-atssa`; your own files by path.

    Later files win. A section that names another function (@architectures, ...) or factory than what stands there
    replaces it whole; any other section adds its keys to what is there. Nothing else removes a key: `null` switches
    off what takes it, and a component goes by an nlp.pipeline without it. Overlays may leave out empty parent sections.

    --set only takes keys that the filled config has. Where max_steps changes and was equal to the total_steps of the
    learning rate's schedule, total_steps changes with it, unless it is set too.
    """
    overlays, settings = overlays or [], settings or []
    with messages(on_stderr=True) as msg:
        composed = compose(base, overlays, settings)
        text = f"{_heading(base, overlays, settings)}\n\n{composed.config.to_str(interpolate=False)}\n"
        if output != STDOUT:
            write_text(Path(output), text)
            msg.good(f"{output}: {', '.join(composed.config['nlp']['pipeline'])}")
        for note in composed.notes:
            msg.info(note)
    if output == STDOUT:
        typer.echo(text, nl=False)


def _heading(base: str, overlays: list[str], settings: list[str]) -> str:
    """How the config can be made again."""
    arguments = [base, *overlays, *(word for setting in settings for word in ("--set", setting))]
    return " ".join(f"# python -m spacy tener config {shlex.join(arguments)}".splitlines())
