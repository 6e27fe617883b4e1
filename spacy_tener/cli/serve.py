"""`python -m spacy tener serve`"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from spacy.cli._util import import_code
from spacy.language import Language

from ..errors import RemedyError
from ..pipeline.finding import entity_finders
from ._app import Code, load_pipeline, messages
from ._group import tener_cli


@tener_cli.command("serve")
def serve_cli(
    models: Annotated[list[str], typer.Argument(help="Pipelines: MODEL, or NAME=MODEL; the first is the default")],
    host: Annotated[str, typer.Option("--host", help="Address to listen at; 0.0.0.0 for all")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", "-p", min=0, max=65535, help="Port, or 0 for any free one")] = 8000,
    max_characters: Annotated[int, typer.Option("--max-characters", min=1, help="Most characters of a text")] = 20_000,
    max_explained: Annotated[
        int, typer.Option("--max-explained", min=1, help="Most characters of a text that is explained")
    ] = 2_000,
    max_texts: Annotated[int, typer.Option("--max-texts", min=1, help="Most texts of a batch")] = 256,
    max_body: Annotated[int, typer.Option("--max-body", min=1, help="Most bytes of a request's body")] = 2 * 2**20,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, help="Seconds for a request to arrive, and to be answered")
    ] = 30.0,
    queue: Annotated[
        int, typer.Option("--queue", min=1, help="Characters that wait for a model before more are refused")
    ] = 1_000_000,
    max_connections: Annotated[int, typer.Option("--max-connections", min=1, help="Most connections")] = 512,
    code: Code = None,
) -> None:
    """
    Serve pipelines: a page to try texts on, and an HTTP API, which /docs shows.

    POST /v1/entities answers one text, /v1/entities/batch several, /v1/entities/stream any number, a line of JSON
    for each. /health, /ready and /metrics are for whatever looks after it. SIGTERM and Ctrl-C end it once all that was
    accepted is answered. Needs FastAPI and uvicorn: pip install 'spacy_tener[serve]'
    """
    import_code(code)
    with messages(stopped="What was accepted has been answered.") as msg:
        try:
            from ..serve import Limits, address, bind, make_app, run
        except ImportError as error:
            raise RemedyError(f"Serving needs {error.name}", "pip install 'spacy_tener[serve]'") from error
        named = _named(models)
        with bind(host, port) as sock:
            pipelines = {name: _load(model) for name, model in named.items()}
            limits = Limits(max_characters, max_explained, max_texts, max_body, timeout, queue, max_connections)
            app = make_app(pipelines, limits)
            run(app, sock, lambda: msg.good(f"{address(sock)}: {', '.join(named)}", "Ctrl-C stops it."))


def _named(models: list[str]) -> dict[str, str]:
    """Name -> pipeline. Without a name of its own a pipeline has that of its directory or package."""
    named = {}
    for model in models:
        name, equals, path = model.partition("=")
        # A path may hold an equals sign, as in runs/lr=0.1/model-best.
        is_named = equals and Path(name).name == name and not Path(model).is_dir()
        named.update({name: path} if is_named else {Path(model).name: model})
    if len(named) < len(models) or "" in named:
        raise RemedyError("Each model needs a name of its own", "Name them, as in: news=MODEL web=MODEL.")
    return named


def _load(model: str) -> Language:
    nlp = load_pipeline(model)
    if not entity_finders(nlp):
        raise RemedyError(f"{model}: no component finds entities", "Name a pipeline with a trained tener_ner.")
    return nlp
