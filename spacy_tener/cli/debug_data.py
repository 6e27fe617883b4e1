"""`python -m spacy tener debug-data`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from spacy.cli._util import import_code, parse_config_overrides, show_validation_error
from spacy.cli.debug_data import debug_data
from spacy.language import Language
from spacy.util import load_config, registry

from ._group import tener_cli

Callback = Callable[[Language], Language]

_CALLBACK = "spacy_tener_report_as_ner"


@tener_cli.command("debug-data", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def debug_data_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, typer.Argument(help="Path to config file", exists=True, allow_dash=True)],
    code_path: Annotated[
        Path | None, typer.Option("--code-path", "--code", "-c", help="Python file with what the config needs")
    ] = None,
    ignore_warnings: Annotated[
        bool, typer.Option("--ignore-warnings", "-IW", help="Only show statistics and errors")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-V", help="Print additional explanations")] = False,
    no_format: Annotated[bool, typer.Option("--no-format", "-NF", help="Print without colours")] = False,
) -> None:
    """
    Check the training data as `spacy debug data` does, entities too.

    spaCy's own command reports on entities only where a component is made by the factory `ner`, and skips that section
    for `tener_ner`. Options are the same, and settings of the config can be overridden in the same way, as in
    --paths.train corpus/train.spacy.
    """
    overrides = parse_config_overrides(ctx.args)
    import_code(code_path)
    with _reported_as_ner(config_path) as path:
        debug_data(
            path,
            config_overrides=overrides,
            ignore_warnings=ignore_warnings,
            verbose=verbose,
            no_format=no_format,
            silent=False,
        )


@contextmanager
def _reported_as_ner(config_path: Path) -> Iterator[Path]:
    """A copy of the config whose pipeline says that its `tener_ner` is made by the factory `ner`."""
    with show_validation_error(config_path), TemporaryDirectory() as directory:
        config = load_config(config_path, interpolate=False)
        nlp = config.setdefault("nlp", {})
        nlp["after_pipeline_creation"] = {"@callbacks": _CALLBACK, "then": nlp.get("after_pipeline_creation")}
        path = Path(directory) / "config.cfg"
        config.to_disk(path, interpolate=False)
        yield path


def _report_as_ner(then: Callback | None = None) -> Callback:
    """then: What the config itself has to be called there."""

    def callback(nlp: Language) -> Language:
        nlp = nlp if then is None else then(nlp)
        for name in nlp.pipe_names:
            meta = nlp.get_pipe_meta(name)
            if meta.factory == "tener_ner":
                nlp._pipe_meta[name] = replace(meta, factory="ner")
        return nlp

    return callback


registry.callbacks.register(_CALLBACK, func=_report_as_ner)
