"""The command `serve`, which serves pipelines over HTTP."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from spacy.language import Language
from spacy.util import is_package

from ..errors import UserError, install
from ..pipeline.finding import check_finders
from . import options
from ._common import (
    command,
    command_line_errors,
    load_pipeline,
    msg,
    setup_gpu,
)


@command("serve", stopped="All accepted requests were answered.")
def serve_cli(
    models: Annotated[
        list[str], typer.Argument(help="Pipelines, as MODEL or NAME=MODEL; the first pipeline is the default")
    ],
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on, or 0.0.0.0 for all addresses")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on, or 0 for any free port")
    ] = 8000,
    max_characters: Annotated[
        int, typer.Option("--max-characters", min=1, help="Maximum number of characters in a text")
    ] = 20_000,
    max_body: Annotated[int, typer.Option("--max-body", min=1, help="Maximum number of bytes in a request")] = 2
    * 2**20,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.1, help="Timeout in seconds for receiving a request, and for answering it"),
    ] = 30.0,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            help="File that contains the API key that clients must send (or set the environment variable "
            "TENER_API_KEY)",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", help="Allowed CORS origin such as https://host, or * for all; may be repeated"),
    ] = None,
    gpu_id: options.GpuId = -1,
    code: options.Code = None,
) -> None:
    """Serve pipelines over HTTP, with a demo page.

    POST /v1/entities processes one text, and POST /v1/entities/batch processes several texts. /docs documents the API.
    /health, /ready and /metrics are for monitoring. After SIGTERM or Ctrl-C, the service completes all accepted
    requests before it exits. Requires the extra `serve`.
    """
    try:
        from ..serve import Limits, address, bind, check_origins, make_app, read_api_key, serve
    except ImportError as error:
        raise UserError(
            f"Serving requires {error.name}",
            f"Run `{install('fastapi', 'httptools', 'prometheus_client', 'uvicorn', 'uvloop')}`.",
        ) from error
    with command_line_errors():
        named, origins = _parse_models(models), check_origins(allow_origin or ())
    api_key = read_api_key(api_key_file)
    for model in named.values():
        # Report a missing pipeline before the port is bound.
        if not (os.path.exists(model) or is_package(model)):
            load_pipeline(model)
    with bind(host, port) as sock:
        setup_gpu(gpu_id)
        pipelines = {name: _load(model) for name, model in named.items()}
        limits = Limits(characters=max_characters, body=max_body, timeout=timeout)
        app = make_app(pipelines, limits, api_key=api_key, allow_origins=origins, gpu_id=gpu_id)
        started = f"{address(sock)}: {', '.join(named)}"
        serve(app, sock, lambda: msg.good(started, "Press Ctrl-C to stop it."))


def _parse_models(models: list[str]) -> dict[str, str]:
    """Parse the arguments `MODEL` or `NAME=MODEL`.

    RETURNS (dict[str, str]): The pipelines by name. The default name is the directory or package name.
    """
    named = {}
    for model in models:
        name, equals, path = model.partition("=")
        # A pipeline path may contain an equals sign, as in runs/lr=0.1/model-best.
        is_named = equals and Path(name).name == name and not Path(model).is_dir()
        named.update({name: path} if is_named else {Path(model).name: model})
    if len(named) < len(models) or "" in named:
        raise UserError("Several models have the same name", "Name each model, for example news=MODEL web=MODEL.")
    return named


def _load(model: str) -> Language:
    """Load a pipeline. Raises a UserError if no component predicts entities."""
    nlp = load_pipeline(model)
    check_finders(nlp, model)
    return nlp
