"""The command `debug-data`, which checks training data with `spacy debug data`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from confection import ConfigValidationError
from spacy.attrs import ENT_IOB
from spacy.cli._util import parse_config_overrides
from spacy.cli.debug_data import debug_data
from spacy.language import Language
from spacy.training.corpus import walk_corpus
from spacy.util import load_config
from thinc.api import Config

from ..corpora.docs import open_docbin
from ..errors import UserError
from ..pipeline.units import MISSING
from ..training.config_files import check_no_ner, check_renamed, problems
from ._common import (
    command,
    is_spacy_error,
    load_pipeline,
    message_of,
    msg,
)

_NAME_CORPORA = "Set the paths, for example --paths.train corpus/train.spacy --paths.dev corpus/dev.spacy."
# Code of spaCy's error for a config without the section [nlp].
_NO_NLP = "[E985]"
_NOT_COUNTED = "The report of `spacy debug data` below doesn't include these tokens in its number of missing values."


@command("debug-data", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def debug_data_cli(
    ctx: typer.Context,
    config_path: Annotated[Path, typer.Argument(help="Config file, or - for standard input")],
    code: Annotated[
        Path | None,
        typer.Option(
            "--code-path", "--code", "-c", help="Python file with additional code (registered functions) to import"
        ),
    ] = None,
    ignore_warnings: Annotated[
        bool, typer.Option("--ignore-warnings", "-IW", help="Ignore warnings, and show only statistics and errors")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-V", help="Print additional explanations")] = False,
    no_format: Annotated[bool, typer.Option("--no-format", "-NF", help="Print without colours")] = False,
) -> None:
    """Check training data and its entities with `spacy debug data`.

    `spacy debug data` checks entities only for the component `ner`. This command also supports `tener_ner`. It has the
    same options, and accepts config overrides, such as --paths.train corpus/train.spacy.
    """
    try:
        config = load_config(config_path, overrides=parse_config_overrides(ctx.args), interpolate=False)
        check_no_ner(config)
        check_renamed(config)
        for path, n_missing, n_tokens in count_missing(config.interpolate()):
            msg.warn(f"{path}: {n_missing:,} of {n_tokens:,} tokens have no annotation", _NOT_COUNTED)
        with TemporaryDirectory() as folder:
            as_ner = Path(folder) / "config.cfg"
            with_ner(config, load_pipeline).to_disk(as_ner)
            debug_data(as_ner, ignore_warnings=ignore_warnings, verbose=verbose, no_format=no_format, silent=False)
    except ConfigValidationError as error:
        raise UserError(f"{config_path}: {problems(error)}", _NAME_CORPORA) from error
    except ValueError as error:
        if not is_spacy_error(error):
            raise
        if _NO_NLP in str(error):
            raise UserError(
                f"{config_path}: the config has no section [nlp]", "Use a complete training config."
            ) from error
        raise UserError(f"{config_path}: {message_of(error)}", _NAME_CORPORA) from error


def count_missing(config: Config) -> Iterator[tuple[str, int, int]]:
    """Count the tokens with missing annotation in each corpus in a config.

    Corpora with complete annotation are left out. Raises a UserError if a corpus is empty or cannot be read.

    config (Config): Training config with a section `corpora`.
    YIELDS (tuple[str, int, int]): Corpus path, number of tokens with missing annotation, and total number of tokens.
    """
    for corpus in config.get("corpora", {}).values():
        path = corpus.get("path")
        if corpus.get("@readers") == "spacy.Corpus.v1" and isinstance(path, str):
            files = [open_docbin(file) for file in walk_corpus(path, ".spacy")]
            tags = [doc[:, file.attrs.index(ENT_IOB)] for file in files if ENT_IOB in file.attrs for doc in file.tokens]
            n_tokens = sum(len(doc) for file in files for doc in file.tokens)
            if not n_tokens:
                raise UserError(
                    f"{path}: contains no texts in .spacy files", "Create .spacy files with `spacy tener convert`."
                )
            n_missing = n_tokens - sum(int((tag != MISSING).sum()) for tag in tags)
            if n_missing:
                yield path, n_missing, n_tokens


def with_ner(config: Config, load: Callable[[str], Language]) -> Config:
    """Replace each `tener_ner` in a config with spaCy's `ner`.

    The settings of `ner` don't matter, because `spacy debug data` only uses the factory name.

    config (Config): Training config, which is changed in place.
    load (Callable[[str], Language]): Function that loads a pipeline, for components with `source`.
    """
    for name, component in config.get("components", {}).items():
        if _factory(name, component, load) == "tener_ner":
            config["components"][name] = {"factory": "ner"}
            config.get("initialize", {}).get("components", {}).pop(name, None)
    return config


def _factory(name: str, component: Mapping[str, Any], load: Callable[[str], Language]) -> str:
    """Return a component's factory name. If the component is sourced from a pipeline, load this pipeline."""
    source = component.get("source")
    if source:
        return load(source).get_pipe_meta(component.get("component", name)).factory
    return str(component.get("factory"))
