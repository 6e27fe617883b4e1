"""What the commands share: options, messages, checks, and how errors are told."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Annotated, Any

import spacy
import typer
from spacy.cli import _util as spacy_cli
from spacy.language import Language
from thinc.api import Config
from thinc.util import gpu_is_available
from wasabi import util
from wasabi.printer import Printer

from ..errors import RemedyError, check_choice
from ..workbench.composing.compose import wrap_config_errors
from ..workbench.composing.files import read_config
from ..workbench.report.scores import read_json
from ..workbench.runs.engines import Engine, on_ray, on_this_machine

INTERRUPTED = 130  # what shells report of a command that Ctrl-C ended

# What several commands take.
Runs = Annotated[list[Path], typer.Argument(help="Directories with runs CORPUS/SYSTEM/SEED in them")]
Corpora = Annotated[str, typer.Option("--corpus", help="Corpora to take, as in weibo,resume (default: all)")]
Systems = Annotated[str, typer.Option("--system", help="Systems to take, as in ner,tener (default: all)")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", "-s", help="section.key=value, over all files; may be repeated")
]
Code = Annotated[
    Path | None, typer.Option("--code", "-c", help="Python file with what the config or the pipeline needs")
]
GpuId = Annotated[int, typer.Option("--gpu-id", "-g", help="GPU, or -1 for the CPU")]


class Messages(Printer):
    """wasabi's Printer, but a list below a title keeps its lines, which wasabi wraps into one paragraph."""

    def text(  # type: ignore[override]
        self, title: Any = "", text: Any = "", *, spaced: bool = False, exits: int | None = None, **options: Any
    ) -> None:
        if options.pop("show", True):
            heading = super().text(title, no_print=True, **options)
            printed = "\n".join([heading, *(util.wrap(line, indent=0) for line in str(text).splitlines())])
            print(f"\n{printed}\n" if spaced or exits is not None else printed)
        if exits is not None:
            sys.exit(exits)


@contextmanager
def messages(*, on_stderr: bool = False, stopped: str = "") -> Iterator[Messages]:
    """What a command prints by. An error inside ends the command with what is wrong and, below it, what to do about it.

    on_stderr: Standard output is for the command's result alone.
    stopped: What to say where the user stops the command.
    """
    with redirect_stdout(sys.stderr) if on_stderr else nullcontext():
        msg = Messages()
        try:
            yield msg
        except RemedyError as error:
            msg.fail(f"{error.place}: {error.reason}" if error.place else error.reason, error.remedy, exits=1)
        except OSError as error:
            msg.fail(str(error), exits=1)
        except KeyboardInterrupt:
            if not stopped:
                raise
            msg.warn("Stopped", stopped, exits=INTERRUPTED)


def setup_gpu(gpu_id: int, *, silent: bool) -> None:
    """Choose the GPU, or -1 for the CPU."""
    try:
        spacy_cli.setup_gpu(gpu_id, silent=silent)
    except (ValueError, RuntimeError) as error:  # from Thinc; from CuPy where there is no such device
        raise _no_gpu(gpu_id, str(error)) from error


def check_gpu(gpu_id: int) -> None:
    """Refuse a GPU where there is none, for a command whose processes will choose it each."""
    if gpu_id >= 0 and not gpu_is_available():
        raise _no_gpu(gpu_id, "there is none, or CuPy is not installed")


def _no_gpu(gpu_id: int, reason: str) -> RemedyError:
    remedy = "Install CuPy by the extra cuda12x or cuda13x, or leave --gpu-id out for the CPU."
    return RemedyError(f"--gpu-id {gpu_id}: {reason.removesuffix('.')}", remedy)


def load_pipeline(name: str) -> Language:
    """A pipeline by its package's name or its directory."""
    try:
        return spacy.load(name)
    except OSError as error:
        # spaCy's own words, without the number of its message.
        reason = (str(error).partition("] ")[2] or str(error)).removesuffix(".")
        raise RemedyError(f"{name}: {reason}", "Name a pipeline that is installed, or its directory.") from error
    except Exception:
        if Path(name).is_dir():
            read_meta(Path(name))
            read_pipeline_config(Path(name))
        raise


def read_meta(model: Path) -> dict[str, Any]:
    """A pipeline's meta.json."""
    try:
        return read_json(model / "meta.json")
    except RemedyError as error:
        raise RemedyError(error.reason, "Restore it from a copy, or train the pipeline again.") from error


def read_pipeline_config(model: Path) -> Config:
    """A pipeline's config, interpolated."""
    path = model / "config.cfg"
    config = read_config(path)
    with wrap_config_errors(str(path)):
        return config.interpolate()


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between them."""
    if not names(text) or not all(name.isdecimal() for name in names(text)):
        raise RemedyError(f"{option} {text}: not whole numbers with commas between them", f"Write {option} 1,2,3.")
    return [int(name) for name in names(text)]


ENGINES = ("local", "ray")

EngineName = Annotated[str, typer.Option("--engine", help="local: this machine; ray: a cluster")]
Address = Annotated[
    str | None, typer.Option("--address", help="Of the cluster (default: RAY_ADDRESS, this machine's, or a new one)")
]
CpusPerRun = Annotated[float | None, typer.Option("--cpus-per-run", help="Cores on Ray (default: 1)", min=0)]
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="How many at once (default: 1; on Ray as many as there is room for)", min=1),
]
GpusPerRun = Annotated[float | None, typer.Option("--gpus-per-run", help="GPUs on Ray, as 0.25 (default: 0)", min=0)]


def training_engine(
    name: str,
    address: str | None,
    cpus: float | None,
    gpus: float | None,
    jobs: int | None,
    *,
    on_ray_at_once: int | None = None,
) -> AbstractContextManager[Engine]:
    """Return what trains: processes on this machine, or Ray.

    jobs: How many at once. By default one here, and on Ray `on_ray_at_once`, or as many as there is room for.
    """
    if check_engine(name, {"--address": address, "--cpus-per-run": cpus, "--gpus-per-run": gpus}):
        return on_ray(address, 1 if cpus is None else cpus, gpus or 0, jobs or on_ray_at_once)
    return on_this_machine(jobs or 1, sys.stderr.write)


def check_engine(name: str, options: Mapping[str, Any]) -> bool:
    """Whether the engine is Ray. Refuses options that it alone has, by their names, without it."""
    check_choice("engine", name, ENGINES)
    given = [option for option, value in options.items() if value is not None]
    if name != "ray" and given:
        raise RemedyError(f"{', '.join(given)}: only for --engine ray", "Add --engine ray, or leave that out.")
    return name == "ray"


def gpu_of_runs(gpu_id: int, engine: str, gpus_per_run: float | None) -> int:
    """The GPU that runs choose: on Ray the first of those that it gives them. Refuses one that is not there."""
    if engine != "ray":
        check_gpu(gpu_id)
        return gpu_id
    if gpu_id >= 0:
        remedy = "Leave it out, and say how much of one each needs by --gpus-per-run or --gpus-per-actor."
        raise RemedyError(f"--gpu-id {gpu_id}: Ray chooses GPUs", remedy)
    return 0 if gpus_per_run else -1
