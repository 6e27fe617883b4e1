"""Arguments and options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="Pipeline: its directory or package")]
Component = Annotated[str | None, typer.Option("--component", help="Name of the tener_ner (default: the first)")]
RawTexts = Annotated[
    list[str], typer.Argument(help="Text files, JSONL, .spacy, directories of them; - for standard input")
]
Base = Annotated[str, typer.Argument(help="Config: a name from the package, as weibo, or a path")]
Overlays = Annotated[list[str] | None, typer.Argument(help="Overlays: names from the package, as mect, or paths")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="section.key=value, overrides all files; may be repeated")
]
Code = Annotated[
    Path | None, typer.Option("--code", "-c", help="Python file with additional code (registered functions) to import")
]
GpuId = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU, or -1 for the CPU")]
EngineName = Annotated[str, typer.Option("--engine", help="local: this machine; ray: a cluster")]
Address = Annotated[
    str | None,
    typer.Option("--address", help="Ray: address of the cluster (default: RAY_ADDRESS, this machine's, or a new one)"),
]
CpusPerRun = Annotated[float | None, typer.Option("--cpus-per-run", help="Ray: cores of a run (default: 1)", min=0)]
GpusPerRun = Annotated[
    float | None, typer.Option("--gpus-per-run", help="Ray: GPUs of a run, as 0.25 (default: 0)", min=0)
]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="Trainings at once (default: 1; on Ray as many as there is room for)", min=1),
]
