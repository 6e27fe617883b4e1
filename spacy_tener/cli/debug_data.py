"""`spacy tener debug-data`: spaCy's check of training data, for `tener_ner` too."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from confection import ConfigValidationError
from spacy.cli._util import parse_config_overrides
from spacy.cli.debug_data import debug_data
from spacy.util import load_config

from ..errors import RemedyError
from ..workbench.config_files import check_no_ner, problems
from ..workbench.spacy_reports import count_missing, with_ner
from ._common import (
    command,
    is_spacy_error,
    load_pipeline,
    message_of,
    msg,
)

_NAME_CORPORA = "Name the corpora, as in --paths.train corpus/train.spacy --paths.dev corpus/dev.spacy."
_NOT_COUNTED = "spaCy's report, which follows, counts them as 0 missing values."


@command("debug-data", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def debug_data_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, typer.Argument(help="Config file; - for standard input")],
    code: Annotated[
        Path | None,
        typer.Option(
            "--code-path", "--code", "-c", help="Python file with additional code (registered functions) to import"
        ),
    ] = None,
    ignore_warnings: Annotated[
        bool, typer.Option("--ignore-warnings", "-IW", help="Only show statistics and errors")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-V", help="Print additional explanations")] = False,
    no_format: Annotated[bool, typer.Option("--no-format", "-NF", help="Print without colours")] = False,
) -> None:
    """
    Check training data and its entities with `spacy debug data`.

    spaCy's command reports on entities for the factory `ner` only; this one does so for `tener_ner` too. Options are
    the same, and so are overrides of the config, as in --paths.train corpus/train.spacy.
    """
    try:
        config = load_config(config_path, overrides=parse_config_overrides(ctx.args), interpolate=False)
        check_no_ner(config)
        for path, n_missing, n_tokens in count_missing(config.interpolate()):
            msg.warn(f"{path}: {n_missing:,} of {n_tokens:,} tokens have no annotation", _NOT_COUNTED)
        with TemporaryDirectory() as folder:
            as_ner = Path(folder) / "config.cfg"
            with_ner(config, load_pipeline).to_disk(as_ner)
            debug_data(as_ner, ignore_warnings=ignore_warnings, verbose=verbose, no_format=no_format, silent=False)
    except ConfigValidationError as error:
        raise RemedyError(f"{config_path}: {problems(error)}", _NAME_CORPORA) from error
    except ValueError as error:
        if not is_spacy_error(error):
            raise
        raise RemedyError(f"{config_path}: {message_of(error)}", _NAME_CORPORA) from error
